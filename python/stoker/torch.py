"""The last step before the model: to a device, finished, and ahead of its use.

Imported when `Batch.to` is first used.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from stoker import Batch, Loader
    from stoker._batch import Finish
    from stoker._prefetch import Prefetcher
    from stoker.ray import RayLoader


def views(batch: Batch) -> dict[str, Any]:
    """The tensors of a batch over its own memory, and its scalars; see `stoker.Batch.torch`."""
    return {**tensors(batch), **batch.scalars}


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """The tensors of a batch over its own memory.

    Others may be reading the memory of a shared batch, and torch has no read-only tensors; what
    comes nearest are inference tensors: outside of inference mode an operation in place on one
    raises RuntimeError, though only once it has written.
    """
    with torch.inference_mode() if batch.shared else nullcontext():
        # Of the capsule: asked for a tensor, torch looks at more than it needs.
        return {name: torch.from_dlpack(tensor.__dlpack__()) for name, tensor in batch.items()}


def to(
    batch: Batch,
    device: torch.device | str | int,
    non_blocking: bool = False,
    dtype: torch.dtype | None = None,
) -> dict[str, Any]:
    """Moves a batch to a device and finishes its pixels there; see `stoker.Batch.to`."""
    device = torch.device(device)
    moved = move(batch, device, non_blocking, dtype)
    if non_blocking and device.type == "cuda" and tensors(batch)["input_ids"].is_pinned():
        # From pinned memory copies are truly under way still, and the caller may let go of the
        # batch, whose memory is then used for another one.
        torch.cuda.current_stream(device).synchronize()
    return moved


def move(
    batch: Batch, device: torch.device, non_blocking: bool, dtype: torch.dtype | None
) -> dict[str, Any]:
    """The same on the current stream; the batch is to be held until that is done with it."""
    moved = {
        name: tensor.to(device, non_blocking=non_blocking)
        for name, tensor in tensors(batch).items()
    }
    pixels = moved.get("pixel_values")
    if pixels is not None:
        if pixels.dtype == torch.uint8:
            pixels = finish(pixels, batch.finish, dtype or torch.float32)
        moved["pixel_values"] = pixels if dtype is None else pixels.to(dtype)
    if batch.shared:
        # What a device does not take lies where it lay; the model is to have ordinary tensors.
        moved = {
            name: tensor.clone() if tensor.is_inference() else tensor
            for name, tensor in moved.items()
        }
    return {**moved, **batch.scalars}


def prefetch(
    loader: Loader | RayLoader,
    device: torch.device | str | int,
    *,
    depth: int = 2,
    dtype: torch.dtype | None = None,
) -> Prefetcher:
    """The batches of a loader on a device, copied while the model works on the ones before.

        batches = stoker.torch.prefetch(loader, "cuda")
        for batch in batches:
            loss = model(**batch).loss
            ...
            state = batches.state_dict()

    On a CUDA device the blocks that batches lie in are pinned, copies run on a stream of their own,
    and the current stream waits for them, not the host. On the CPU nothing is copied that
    `Batch.to` would not copy.

    Args:
        loader: A `stoker.Loader` or `stoker.ray.RayLoader`, to be used by nobody else meanwhile:
            another one over it would go on behind what this one has copied ahead.
        device: Where to. Of a kind without an index the current one.
        depth: Batches on the device: the one that is worked on, and those ahead of it. With 2, the
            default, copying a batch takes no time unless it takes longer than a step; each more
            takes that much memory of the device. With 1 nothing is copied ahead. `next` launches
            copies while the loop still holds the batch before, so for that moment there is one
            more, unless the loop lets go of it first (`del batch`).
        dtype: Element type of `pixel_values`; see `stoker.Batch.to`.

    Raises:
        TypeError: `loader` is something else.
        ValueError: `depth` is less than 1.
    """
    from stoker._prefetch import Prefetcher

    return Prefetcher(loader, device, depth=depth, dtype=dtype)


def finish(pixels: torch.Tensor, constants: Finish, dtype: torch.dtype) -> torch.Tensor:
    """Finishes `u8` pixels exactly as the engine writes `f32` ones.

    Args:
        pixels: uint8 `[patches, channels * patch_size**2]`.
        constants: `Batch.finish`; its mean and std are those of the model, times 255.
        dtype: Element type of the result; rounded to it after the arithmetic, which is f32.

    Returns:
        `[patches, channels * temporal_patch_size * patch_size**2]`: `(u - mean) / std` per channel,
        repeated for each frame of the temporal patch.
    """
    # One row per channel: dividing by a tensor is exact on all devices, by a number it need not be.
    mean = _column(constants["mean"], pixels.device)
    std = _column(constants["std"], pixels.device)
    channels, area = len(mean), constants["patch_size"] ** 2
    values = pixels.view(-1, channels, area).to(torch.float32).sub_(mean).div_(std).to(dtype)
    frames = values[:, :, None].expand(-1, -1, constants["temporal_patch_size"], -1)
    return frames.reshape(len(pixels), -1)


def _column(values: list[float], device: torch.device) -> torch.Tensor:
    """Numbers as f32 `[len(values), 1]`, filled in there: a copy would have the host wait."""
    column = torch.empty(len(values), 1, dtype=torch.float32, device=device)
    for row, value in enumerate(values):
        column[row].fill_(value)
    return column
