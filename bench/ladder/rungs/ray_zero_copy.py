"""Rung 3: the batches come as NumPy arrays, which the trainer reads where Ray put them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import ray
import torch

from bench.ladder.rungs import ray_prefetch

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class Loader(ray_prefetch.Loader):
    """The window of rung 2, over shared memory."""

    def ask(self, worker: ActorHandle, number: int) -> ray.ObjectRef:
        """Asks for a batch."""
        return worker.arrays.remote(number)

    def take(self, asked: ray.ObjectRef) -> dict[str, torch.Tensor]:
        """Waits for it and lays tensors over it.

        Ray's arrays are read-only, torch's tensors are not: whoever writes to one changes it for
        all readers. torch warns of that.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return {name: torch.from_numpy(array) for name, array in ray.get(asked).items()}
