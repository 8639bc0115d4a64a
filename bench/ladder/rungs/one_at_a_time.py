"""Rung 0: the loader that people start with. One GET, one decode, one resize after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from bench.ladder.samples import Samples
from bench.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job


class Loader:
    """In the trainer's own process, when the trainer asks."""

    def __init__(self, job: Job, connections: int = 1) -> None:
        config = Config(max_pool_connections=connections)
        self.client = boto3.client("s3", endpoint_url=job.store.endpoint, config=config)
        self.bucket = job.store.bucket
        self.samples = Samples(job, self.get(job.store.key))
        self.processor = Processor(job.model)

    def get(self, key: str) -> bytes:
        """An object's bytes."""
        return self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def example(self, sample: dict[str, Any]) -> dict[str, torch.Tensor]:
        """A sample becomes tensors."""
        return self.processor.example(sample, [self.get(key) for key in self.samples.keys(sample)])

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        for number in range(count):
            yield self.processor.collate(list(map(self.example, self.samples.batch(number))))

    def close(self) -> None:
        """Closes the connection."""
        self.client.close()
