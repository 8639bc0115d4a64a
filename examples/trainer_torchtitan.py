"""Trains as torchtitan does: all that has a state is `Stateful`, in one distributed checkpoint.

    torchrun --nproc-per-node 2 examples/trainer_torchtitan.py /tmp/colours/recipe.toml /tmp/titan 6

The last number is that of the step to stop at. Run again, it goes on, on any number of ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import stoker
import torch
from stoker.trainers.torchtitan import DataLoader
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint.stateful import Stateful
from torch.nn.functional import cross_entropy
from train_tiny_qwen3_vl import tiny_model


class Trainer(Stateful):
    """Counts its steps, as torchtitan's does."""

    step = 0

    def state_dict(self) -> dict[str, Any]:
        """To be saved."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was saved."""
        self.step = state["step"]

    def train(self, recipe: str, folder: Path, until: int) -> None:
        """Trains to a step, and saves."""
        model = torch.nn.parallel.DistributedDataParallel(tiny_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        batches = DataLoader(stoker.Loader(recipe))
        states = {"model": model.module, "dataloader": batches, "train_state": self}
        if folder.exists():
            checkpoint.load(states, checkpoint_id=folder)
        for _, (inputs, labels) in zip(range(self.step, until), batches, strict=False):
            logits = model(**inputs).logits[:, :-1].flatten(0, 1)
            cross_entropy(logits, labels[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            self.step += 1
        checkpoint.save(states, checkpoint_id=folder)


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    Trainer().train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    distributed.destroy_process_group()
