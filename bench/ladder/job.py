"""The one job of all rungs, and what a rung is to the training loop.

Each way to load lives in a file of its own under `rungs/`, as a class `Loader` that takes the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch
    from stoker.demo.store import Store


class Job(NamedTuple):
    """Samples from a store to a trainer, in the order of the source."""

    store: Store
    model: Path
    batch_size: int
    cores: int
    """What the trainer, the loader and the store have together."""
    scratch: Path
    """Where files of the run may lie."""

    @property
    def batches(self) -> int:
        """Batches in one pass over the data; the rest of the division is left."""
        return self.store.samples // self.batch_size


class Loader(Protocol):
    """One way to load."""

    def __init__(self, job: Job) -> None: ...

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data, anew each time; what was started stays warm."""

    def close(self) -> None:
        """Ends all that was started."""
