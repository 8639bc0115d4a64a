"""Rung 1c: asyncio brings the bytes of a batch at once, a pool of processes prepares them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.ladder.client import Client
from bench.ladder.samples import Samples
from bench.processes import die_with_parent
from bench.processor import Processor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job

here: Processor
"""A pool's work is a function, so what it needs has to be global in its process."""


def begin(job: Job) -> None:
    """The first thing that a process of the pool does."""
    global here
    die_with_parent()
    here = Processor(job.model)


def example(sample: dict[str, Any], images: list[bytes]) -> dict[str, torch.Tensor]:
    """In the pool: a sample becomes tensors, which go back in memory that both processes share."""
    return here.example(sample, images)


class Loader:
    """An event loop in the trainer's process and a process for each core, when the trainer asks."""

    def __init__(self, job: Job) -> None:
        self.pool = ProcessPoolExecutor(job.cores, initializer=begin, initargs=(job,))
        self.pool.submit(abs, 0).result()  # so that it forks before there are threads
        self.runner = asyncio.Runner()
        self.client = self.runner.run(Client.open(job))
        self.samples = Samples(job, self.runner.run(self.client.get(job.store.key)))
        self.processor = Processor(job.model)

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        for number in range(count):
            yield self.runner.run(self.batch(number))

    async def batch(self, number: int) -> dict[str, torch.Tensor]:
        """All samples of a batch at the same time."""
        examples = map(self.example, self.samples.batch(number))
        return self.processor.collate(await asyncio.gather(*examples))

    async def example(self, sample: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Its images, then a process for it."""
        images = await self.client.get_all(self.samples.keys(sample))
        return await asyncio.get_running_loop().run_in_executor(self.pool, example, sample, images)

    def close(self) -> None:
        """Ends the processes and the event loop."""
        self.pool.shutdown(cancel_futures=True)
        self.runner.run(self.client.close())
        self.runner.close()
