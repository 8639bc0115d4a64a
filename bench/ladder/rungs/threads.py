"""Rung 1a: the same, but the samples of a batch are made on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from bench.ladder.rungs import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job


class Loader(one_at_a_time.Loader):
    """A thread for each sample of a batch, when the trainer asks."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, connections=job.batch_size)
        self.threads = ThreadPoolExecutor(job.batch_size)

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        for number in range(count):
            examples = self.threads.map(self.example, self.samples.batch(number))
            yield self.processor.collate(list(examples))

    def close(self) -> None:
        """Ends the threads."""
        self.threads.shutdown(cancel_futures=True)
        super().close()
