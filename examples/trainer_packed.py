"""Trains on packed batches with transformers' own Trainer.

    python examples/trainer_packed.py /tmp/colours/recipe.toml

docs/guides/packing.md says why it is so.
"""

from __future__ import annotations

import sys
import tempfile

import stoker
import transformers
from torch.utils.data import DataLoader, IterableDataset
from train_tiny_qwen3_vl import TEXT, VISION

PACK = {"pack.batch-size": None, "pack.max-tokens": 160, "pack.min-images-per-batch": 1}
ENDLESS = {"plan.epochs": None, "plan.lanes": 1}  # batches of an epoch are not known beforehand


class Batches(IterableDataset):
    """What a loader gives, as the dicts that the model's `forward` takes."""

    def __init__(self, loader: stoker.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> map:
        return map(stoker.Batch.torch, self.loader)


class Trainer(transformers.Trainer):
    """Takes batches as they come."""

    def get_train_dataloader(self) -> DataLoader:
        """They are made for this rank already, so nothing deals them out to ranks."""
        return DataLoader(self.train_dataset, batch_size=None)


def main(recipe: str) -> None:
    """Trains for 12 steps."""
    transformers.set_seed(0)
    config = transformers.Qwen3VLConfig(text_config=TEXT, vision_config=VISION)
    model = transformers.Qwen3VLForConditionalGeneration(config)
    with (
        stoker.Loader(recipe, overrides=PACK | ENDLESS) as loader,
        tempfile.TemporaryDirectory() as folder,
    ):
        arguments = transformers.TrainingArguments(
            output_dir=folder, max_steps=12, learning_rate=1e-2, logging_steps=1, report_to=[],
            save_strategy="no", remove_unused_columns=False, disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model=model, args=arguments, train_dataset=Batches(loader))
        trainer.train()
        losses = [float(step["loss"]) for step in trainer.state.log_history[:-1]]
        print("\n".join(f"loss {loss:.2f}" for loss in losses), loader.report(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
