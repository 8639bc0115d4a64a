"""Trains with transformers' own Trainer. Run again, it goes on from its last checkpoint.

    python examples/trainer_transformers.py /tmp/colours/recipe.toml /tmp/trainer 6

The last number is that of the step to stop at; with torchrun it trains on several ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import stoker
import transformers
from stoker.trainers.transformers import TrainerMixin
from train_tiny_qwen3_vl import tiny_model
from transformers.trainer_utils import get_last_checkpoint


class Trainer(TrainerMixin, transformers.Trainer):
    """Takes a loader as `train_dataset`; its state is in every checkpoint."""


def main(recipe: str, folder: Path, until: int) -> None:
    """Trains to a step, and saves."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=until, gradient_accumulation_steps=2, save_steps=2,
        learning_rate=1e-3, logging_steps=1, report_to=[], disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    with stoker.Loader(recipe) as loader:
        trainer = Trainer(model=tiny_model(), args=arguments, train_dataset=loader)
        last = get_last_checkpoint(str(folder)) if folder.exists() else None
        trainer.train(resume_from_checkpoint=last)
        print(loader.report())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
