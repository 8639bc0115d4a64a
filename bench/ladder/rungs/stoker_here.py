"""Rung 4: stoker in the trainer's process."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import stoker
from stoker.demo.rungs import WAYS, Settings, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from bench.ladder.job import Job


class Loader:
    """The engine as it comes."""

    def __init__(self, job: Job) -> None:
        settings = Settings(job.model, job.batch_size, job.scratch)
        self.loader = self.open(recipe(WAYS[-1], job.store, settings))
        self.beginning = self.loader.state_dict()

    def open(self, document: dict[str, Any]) -> stoker.Loader:
        """The loader of a recipe: the same as the demo's."""
        return stoker.Loader(document, rank=0, world_size=1)

    def batches(self, count: int) -> Iterator[dict[str, torch.Tensor]]:
        """The first batches of the data."""
        self.loader.load_state_dict(self.beginning)
        for batch in islice(self.loader, count):
            yield batch.torch()

    def close(self) -> None:
        """Ends its threads."""
        self.loader.close()
