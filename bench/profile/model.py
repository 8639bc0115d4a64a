"""A model folder whose tokenizer is cut down to the most common words."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MERGES = 12_000
"""How many are kept, the most common ones: enough for nearly all words of plain English."""


def small(model: Path, folder: Path) -> Path:
    """Copies a model's folder, and cuts its tokenizer.

    Returns:
        The copy.
    """
    folder.mkdir()
    for path in model.iterdir():
        if path.is_file() and path.name != "tokenizer.json":
            shutil.copyfile(path, folder / path.name)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    cut(tokenizer)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    return folder


def cut(tokenizer: dict[str, Any]) -> None:
    """Keeps the first merges, the letters and what the merges make; the added tokens follow."""
    model = tokenizer["model"]
    model["merges"] = model["merges"][:MERGES]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    made = {"".join(pair) for pair in pairs}
    kept = {token: n for token, n in model["vocab"].items() if len(token) == 1 or token in made}
    tokens = sorted(kept, key=kept.__getitem__)
    model["vocab"] = {token: number for number, token in enumerate(tokens)}
    for number, token in enumerate(tokenizer["added_tokens"], start=len(tokens)):
        token["id"] = number
