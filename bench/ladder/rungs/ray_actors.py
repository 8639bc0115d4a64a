"""Rung 1d: asyncio inside Ray actors; each makes a whole batch when the trainer has none left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ray

from bench.ladder.actors import workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job


class Loader:
    """Batches in rounds, one of each actor; nothing is made while the trainer trains."""

    def __init__(self, job: Job) -> None:
        self.workers = workers(job)

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data.

        The first one comes alone: it is counted apart, and would take others of its round with it.
        """
        rounds = [range(min(1, count))]
        rounds += [
            range(first, min(first + len(self.workers), count))
            for first in range(1, count, len(self.workers))
        ]
        for numbers in rounds:
            asked = [self.workers[n % len(self.workers)].tensors.remote(n) for n in numbers]
            made = ray.get(asked)
            del asked
            while made:
                yield made.pop(0)

    def close(self) -> None:
        """The actors end with their Ray."""
