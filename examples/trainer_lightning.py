"""Trains with Lightning. Run again, it goes on from its checkpoint.

    python examples/trainer_lightning.py /tmp/colours/recipe.toml /tmp/lightning.ckpt 6

The last number is that of the step to stop at.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import stoker
import torch
from stoker.trainers.lightning import DataModule
from train_tiny_qwen3_vl import tiny_model


class Model(lightning.LightningModule):
    """A tiny Qwen3-VL."""

    def __init__(self) -> None:
        super().__init__()
        self.model = tiny_model()

    def training_step(self, batch: dict[str, Any], number: int) -> torch.Tensor:
        """Batches come on the module's device, as the model takes them."""
        loss = self.model(**batch).loss
        print(f"batch {number} of its epoch: loss {loss.item():.2f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Lightning saves and loads it."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(recipe: str, saved: Path, until: int) -> None:
    """Trains to a step, and saves."""
    trainer = lightning.Trainer(
        max_steps=until, accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        use_distributed_sampler=False, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    data = DataModule(lambda: stoker.Loader(recipe))  # opened once the rank is known
    trainer.fit(Model(), data, ckpt_path=saved if saved.exists() else None)
    trainer.save_checkpoint(saved)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
