"""The last step before the model: to a device, finished. Imported when `Batch.to` is first used."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from stoker import Batch
    from stoker._batch import Finish


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
    mean = torch.tensor(constants["mean"], device=pixels.device)[:, None]
    std = torch.tensor(constants["std"], device=pixels.device)[:, None]
    channels, area = len(mean), constants["patch_size"] ** 2
    values = ((pixels.view(-1, channels, area).to(torch.float32) - mean) / std).to(dtype)
    frames = values[:, :, None].expand(-1, -1, constants["temporal_patch_size"], -1)
    return frames.reshape(len(pixels), -1)
