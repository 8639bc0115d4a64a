"""Trains on packed batches with transformers' own Trainer.

    python examples/trainer_packed.py /tmp/colours/recipe.toml

docs/guides/packing.md says why it is so.
"""

from __future__ import annotations

import sys
import tempfile

import stoker
import transformers
from stoker.trainers.transformers import TrainerMixin
from train_tiny_qwen3_vl import tiny_model

PACK = {"pack.batch-size": None, "pack.max-tokens": 160, "pack.min-images-per-batch": 1}
ENDLESS = {"plan.epochs": None, "plan.lanes": 1}  # batches of an epoch are not known beforehand


class Trainer(TrainerMixin, transformers.Trainer):
    """Takes batches as they come."""


def main(recipe: str) -> None:
    """Trains for 12 steps."""
    with (
        stoker.Loader(recipe, overrides=PACK | ENDLESS) as loader,
        tempfile.TemporaryDirectory() as folder,
    ):
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=12, learning_rate=1e-2, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model=tiny_model(), args=arguments, train_dataset=loader)
        trainer.train()
        losses = [float(step["loss"]) for step in trainer.state.log_history[:-1]]
        print("\n".join(f"loss {loss:.2f}" for loss in losses), loader.report(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
