"""That a batch is what transformers makes of its samples.

The reference is the plain way, one sample after the other: Pillow decodes, transformers' own
processor does the rest. Each sample says its number, so batches may come in any order.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench.processor import Processor

if TYPE_CHECKING:
    from bench.speed.job import Job

MOST_LEVELS, MEAN_LEVELS = 12.0, 0.2
"""How far pixels may be from the reference, of 255 levels, to count as the same work: what another
bicubic resize makes of the same image (Pillow's against torchvision's). It is told in any case."""
NUMBER = re.compile(r"Photo (\d+):")


class CheckError(Exception):
    """A batch is not what it should be; the message says in what."""


def check(batch: dict[str, torch.Tensor], job: Job) -> dict[str, Any]:
    """Compares a batch with the reference.

    Args:
        batch: One without `input_ids` says in `number` which samples it holds.
        job: What it was made of.

    Returns:
        `samples`: how many; `equal`: the tensors without a difference; `pixel_levels_most` and
        `pixel_levels_mean`: how far pixels are apart, in levels of 255, after rounding the
        reference to the element type of the batch.

    Raises:
        CheckError: Something else than pixels differs, or they differ by more than another resize.
    """
    processor = Processor(Path(job.model))
    lines = (Path(job.folder) / "objects/train.jsonl").read_text().splitlines()
    has_text = "input_ids" in batch
    numbers = told(batch["input_ids"], processor) if has_text else batch["number"].tolist()
    pixels, at = finished(batch["pixel_values"], Path(job.model)), 0
    most, total = 0.0, 0.0
    for row, number in enumerate(numbers):
        chat = json.loads(lines[number])
        image = Path(job.folder) / "objects" / chat["messages"][0]["content"][0]["image"]
        wanted = processor.example(chat, [image.read_bytes()])
        if has_text:
            same_text(batch, row, wanted, number)
        grid, expected = batch["image_grid_thw"][row], wanted["pixel_values"].to(pixels.dtype)
        if not torch.equal(grid.to(torch.int64), wanted["image_grid_thw"][0]):
            raise CheckError(
                f"image_grid_thw of sample {number} is {grid.tolist()}, not the reference's"
            )
        ours, at = pixels[at : at + len(expected)], at + len(expected)
        levels = (ours.float() - expected.float()).abs() * level(Path(job.model))
        most, total = max(most, float(levels.max())), total + float(levels.mean())
    mean = total / len(numbers)
    if at != len(pixels):
        raise CheckError(f"it has {len(pixels)} patches, the reference {at}")
    if most > MOST_LEVELS or mean > MEAN_LEVELS:
        raise CheckError(
            f"its pixels are {mean:.3f} levels of 255 off in the mean, {most:.1f} at most"
        )
    names = ["image_grid_thw", *(["pixel_values"] if most == 0 else [])]
    names += [name for name in ("input_ids", "labels", "attention_mask") if name in batch]
    return {
        "samples": len(numbers),
        "equal": names,
        "pixel_levels_most": most,
        "pixel_levels_mean": mean,
    }


def told(ids: torch.Tensor, processor: Processor) -> list[int]:
    """The numbers that the samples of a batch say."""
    texts = [processor.processor.tokenizer.decode(row) for row in ids]
    found = [NUMBER.search(text) for text in texts]
    if not all(found):
        raise CheckError(
            "a sample of it doesn't say which it is: input_ids are not the reference's"
        )
    return [int(match[1]) for match in found]


def same_text(
    batch: dict[str, torch.Tensor], row: int, wanted: dict[str, torch.Tensor], number: int
) -> None:
    """Compares what a sample has beside pixels, and what it is padded with."""
    length = wanted["input_ids"].shape[1]
    padding = {"labels": -100, "attention_mask": 0}
    for name in ("input_ids", "labels", "attention_mask"):
        if name not in batch:
            continue
        ours = batch[name][row]
        if not torch.equal(ours[:length].long(), wanted[name][0].long()):
            raise CheckError(f"{name} of sample {number} are not the reference's")
        if name in padding and bool((ours[length:] != padding[name]).any()):
            raise CheckError(f"{name} of sample {number} are not padded with {padding[name]}")


def finished(pixels: torch.Tensor, model: Path) -> torch.Tensor:
    """Pixels as the model takes them: bytes are normalised, and repeated for each frame."""
    if pixels.dtype != torch.uint8:
        return pixels
    config = json.loads((model / "preprocessor_config.json").read_text())
    channels, frames = len(config["image_mean"]), config["temporal_patch_size"]
    by_channel = pixels.view(len(pixels), channels, 1, -1).to(torch.float32)
    mean = torch.tensor(config["image_mean"]).view(1, channels, 1, 1)
    deviation = torch.tensor(config["image_std"]).view(1, channels, 1, 1)
    normal = (by_channel - mean * 255) / (deviation * 255)
    return normal.expand(-1, -1, frames, -1).reshape(len(pixels), -1)


def level(model: Path) -> float:
    """Levels of 255 in a unit of finished pixels."""
    config = json.loads((model / "preprocessor_config.json").read_text())
    return 255 * max(config["image_std"])
