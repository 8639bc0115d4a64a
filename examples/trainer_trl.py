"""Fine-tunes with TRL on packed chats with images, which TRL by itself refuses to pack.

    python examples/trainer_trl.py /tmp/colours/recipe.toml /tmp/sft 6

The last number is that of the step to stop at. Run again, it goes on from its last checkpoint.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import stoker
from stoker.trainers.transformers import TrainerMixin
from train_tiny_qwen3_vl import tiny_model
from transformers import AutoProcessor
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig
from trl import SFTTrainer as PlainTrainer

PACK = {"pack.batch-size": None, "pack.max-tokens": 160, "pack.min-images-per-batch": 1}
ENDLESS = {"plan.epochs": None, "plan.lanes": 2}  # batches of an epoch are not known beforehand


class SFTTrainer(TrainerMixin, PlainTrainer):
    """Takes a loader as `train_dataset`; its state is in every checkpoint."""


def main(recipe: str, folder: Path, until: int) -> None:
    """Trains to a step, and saves."""
    model = Path(recipe).parent / tomllib.loads(Path(recipe).read_text())["model"]
    arguments = SFTConfig(
        output_dir=str(folder), max_steps=until, save_steps=2, learning_rate=1e-3, logging_steps=1,
        report_to=[], disable_tqdm=True, use_cpu=True, bf16=False,
    )  # fmt: skip
    with stoker.Loader(recipe, overrides=PACK | ENDLESS) as loader:
        trainer = SFTTrainer(
            model=tiny_model(),
            args=arguments,
            train_dataset=loader,
            processing_class=AutoProcessor.from_pretrained(model),
        )
        last = get_last_checkpoint(str(folder)) if folder.exists() else None
        trainer.train(resume_from_checkpoint=last)
        print(loader.report())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
