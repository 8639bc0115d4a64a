"""The asynchronous store client of the Python rungs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from aiobotocore.session import get_session

if TYPE_CHECKING:
    from bench.ladder.job import Job


class Client:
    """aiobotocore's client, for one bucket."""

    def __init__(self, client: Any, bucket: str, stack: AsyncExitStack) -> None:
        self.client = client
        self.bucket = bucket
        self.stack = stack

    @classmethod
    async def open(cls, job: Job) -> Self:
        """Makes the client."""
        stack = AsyncExitStack()
        client = get_session().create_client("s3", endpoint_url=job.store.endpoint)
        return cls(await stack.enter_async_context(client), job.store.bucket, stack)

    async def get(self, key: str) -> bytes:
        """An object's bytes."""
        answer = await self.client.get_object(Bucket=self.bucket, Key=key)
        async with answer["Body"] as body:
            return await body.read()

    async def get_all(self, keys: list[str]) -> list[bytes]:
        """The bytes of several objects at the same time, in their order."""
        return await asyncio.gather(*map(self.get, keys))

    async def close(self) -> None:
        """Closes the connections."""
        await self.stack.aclose()
