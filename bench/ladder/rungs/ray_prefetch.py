"""Rung 2: the same actors are asked for the next batches while the trainer trains."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import ray

from bench.ladder.actors import workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from ray.actor import ActorHandle

    from bench.ladder.job import Job

AHEAD = 2
"""Batches ahead for each actor, as torch's DataLoader has it."""


class Loader:
    """A window of batches in flight, taken in order."""

    def __init__(self, job: Job) -> None:
        self.workers = workers(job)

    def ask(self, worker: ActorHandle, number: int) -> ray.ObjectRef:
        """Asks for a batch."""
        return worker.tensors.remote(number)

    def take(self, asked: ray.ObjectRef) -> dict[str, torch.Tensor]:
        """Waits for it and takes it."""
        return ray.get(asked)

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        asked: deque[ray.ObjectRef] = deque()
        for number in range(count + AHEAD * len(self.workers)):
            if number < count:
                asked.append(self.ask(self.workers[number % len(self.workers)], number))
            if number >= AHEAD * len(self.workers) and asked:
                yield self.take(asked.popleft())

    def close(self) -> None:
        """The actors end with their Ray."""
