"""Looks at batches before a model does: what is padding, what is image, what is learned.

    python examples/look_at_data.py /tmp/colours/recipe.toml

`stoker peek recipe.toml --sample 3 --png .` shows one sample in every detail, and its images.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import stoker
from tokenizers import Tokenizer

BATCHES = 4


def main(recipe: str) -> None:
    """Prints shapes and shares of a few batches, and what is learned of one sample."""
    tokens = learned = seen = slots = 0
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        for _, batch in zip(range(BATCHES), loader, strict=False):
            arrays = batch.numpy()  # views of the engine's memory: nothing is copied
            slots += arrays["attention_mask"].size
            tokens += int(arrays["attention_mask"].sum())
            learned += int((arrays["labels"] != -100).sum())
            seen += int((arrays["mm_token_type_ids"] == 1).sum())
        for name, tensor in batch.items():
            print(f"{name:<18} {tensor.dtype:<9} {list(tensor.shape)}")
        print("dataset and row of each sample:", batch.samples)
        print(f"padding {1 - tokens / slots:.1%} of all places")
        print(f"of {tokens} tokens {seen / tokens:.1%} are image, {learned / tokens:.1%} learned")

        labels = arrays["labels"][0]
        text = tokenizer(recipe).decode(labels[labels != -100], skip_special_tokens=False)
        print("learned of the first sample:", repr(text))


def tokenizer(recipe: str) -> Tokenizer:
    """The tokenizer in the recipe's model folder."""
    path = Path(recipe)
    model = path.parent / tomllib.loads(path.read_text())["model"]
    return Tokenizer.from_file(str(model / "tokenizer.json"))


if __name__ == "__main__":
    main(sys.argv[1])
