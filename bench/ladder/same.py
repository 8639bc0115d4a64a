"""That all rungs do the same work: their first batches against those of rung 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from stoker.demo.store import DemoError

if TYPE_CHECKING:
    from bench.ladder.job import Job

MOST_LEVELS = 1.0
"""How far a pixel may be from rung 0's, of 255 levels: where a rounding falls the other way."""


def compare(batches: list[dict[str, torch.Tensor]], job: Job) -> dict[str, Any]:
    """Compares batches with those of the first rung, which are kept in a file.

    Returns:
        `equal`: the tensors without a difference; `pixel_levels_most`: the largest difference of a
        pixel, in levels of 255; `in_shared_memory`: whether the pixels lie in memory that several
        processes share.

    Raises:
        DemoError: A tensor is missing or not what it should be.
    """
    file = job.scratch / "first-batches.pt"
    if not file.exists():
        torch.save(batches, file)
    expected = torch.load(file, mmap=True)
    differences: dict[str, float] = {}
    for ours, theirs in zip(batches, expected, strict=True):
        for name, tensor in theirs.items():
            found = difference(name, ours.get(name), tensor)
            differences[name] = max(found, differences.get(name, 0.0))
    deviation = json.loads((job.model / "preprocessor_config.json").read_text())["image_std"]
    levels = differences.get("pixel_values", 0.0) * 255 * max(deviation)
    wrong = {name for name, found in differences.items() if found} - {"pixel_values"}
    if wrong or levels > MOST_LEVELS:
        raise DemoError(
            f"its first batches are not rung 0's: {', '.join(sorted(wrong)) or 'pixel_values'} "
            f"differ (pixels by {levels:.2f} of 255 levels)"
        )
    return {
        "batches": len(batches),
        "equal": [name for name, found in differences.items() if not found],
        "pixel_levels_most": levels,
        "in_shared_memory": any(map(shared, batches)),
    }


def difference(name: str, ours: torch.Tensor | None, theirs: torch.Tensor) -> float:
    """The largest difference of two tensors."""
    if ours is None or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        shape = None if ours is None else (tuple(ours.shape), ours.dtype)
        raise DemoError(
            f"its first batches are not rung 0's: {name} is {shape}, "
            f"not {(tuple(theirs.shape), theirs.dtype)}"
        )
    return 0.0 if torch.equal(ours, theirs) else float((ours - theirs).abs().max())


def shared(batch: dict[str, torch.Tensor]) -> bool:
    """Whether its pixels lie in a file under /dev/shm."""
    if "pixel_values" not in batch:
        return False
    address = batch["pixel_values"].data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, _, end = line.split(" ", 1)[0].partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return "/dev/shm/" in line
    return False
