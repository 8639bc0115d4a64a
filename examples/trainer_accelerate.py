"""Trains with Accelerate, two batches a step. Run again, it goes on from its checkpoint.

    python examples/trainer_accelerate.py /tmp/colours/recipe.toml /tmp/accelerate 6

The last number is that of the batch to stop at; `accelerate launch` trains on several ranks.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import stoker
import torch
from accelerate import Accelerator
from stoker.trainers import DataLoader
from train_tiny_qwen3_vl import tiny_model


class Progress:
    """What Accelerate is to save beside the model, the optimizer and the data loader."""

    batches = 0

    def state_dict(self) -> dict[str, int]:
        """To be saved."""
        return {"batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """As it was saved."""
        self.batches = state["batches"]


def main(recipe: str, folder: Path, until: int) -> None:
    """Trains to a batch, and saves."""
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model, progress = tiny_model(), Progress()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with stoker.Loader(recipe) as loader:
        batches = DataLoader(loader, accelerator.device)
        model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
        accelerator.register_for_checkpointing(progress)
        if folder.exists():
            accelerator.load_state(folder)
        for batch in islice(batches, until - progress.batches):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            progress.batches += 1
            accelerator.print(f"batch {progress.batches}: loss {loss.item():.2f}")
        accelerator.save_state(folder)
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
