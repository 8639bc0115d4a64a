"""The data workers of the Python rungs on Ray: asyncio inside actors, a core each."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray

from bench.ladder.client import Client
from bench.ladder.samples import Samples
from bench.processor import Processor

if TYPE_CHECKING:
    import numpy as np
    import torch
    from ray.actor import ActorHandle

    from bench.ladder.job import Job


class DataWorker:
    """Makes batches: brings all images of one at the same time, prepares them on a thread.

    On a thread, so that its event loop hears the answers of the store meanwhile; on one, as it has
    one core.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.processor = Processor(job.model)
        self.thread = ThreadPoolExecutor(1)

    async def begin(self) -> None:
        """Reads the source."""
        self.client = await Client.open(self.job)
        self.samples = Samples(self.job, await self.client.get(self.job.store.key))

    async def tensors(self, number: int) -> dict[str, torch.Tensor]:
        """A batch of torch tensors, which Ray pickles: copies on both sides."""
        examples = await asyncio.gather(*map(self.example, self.samples.batch(number)))
        return await self.aside(self.processor.collate, examples)

    async def arrays(self, number: int) -> dict[str, np.ndarray]:
        """The same batch as NumPy arrays, which Ray writes once and readers read in place."""
        return {name: tensor.numpy() for name, tensor in (await self.tensors(number)).items()}

    async def example(self, sample: dict[str, Any]) -> dict[str, torch.Tensor]:
        """A sample becomes tensors."""
        images = await self.client.get_all(self.samples.keys(sample))
        return await self.aside(self.processor.example, sample, images)

    async def aside(self, work: Any, *arguments: Any) -> Any:
        """Runs a function on the worker's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)


def workers(job: Job) -> list[ActorHandle]:
    """A worker for each core; the rungs of one Ray share them, and they end with it."""
    actor = ray.remote(num_cpus=1)(DataWorker)
    found = [
        actor.options(name=f"data worker {number}", get_if_exists=True, lifetime="detached").remote(
            job
        )
        for number in range(job.cores)
    ]
    ray.get([worker.begin.remote() for worker in found])
    return found
