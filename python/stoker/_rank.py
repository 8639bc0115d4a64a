"""Which part of the data this process is fed."""

from __future__ import annotations

import os
import sys


def resolve(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Finds rank and world size.

    As given; else those of torch.distributed, if the program has initialised it; else Ray Train's,
    in a training function; else the environment's RANK and WORLD_SIZE, which launchers set; else 0
    of 1.
    """
    if (rank is None) != (world_size is None):
        raise TypeError("rank and world_size go together: give both or neither")
    if rank is None or world_size is None:
        rank, world_size = _torch_distributed() or _ray_train() or _environment() or (0, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}: ranks count from 0")
    return rank, world_size


def _torch_distributed() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _ray_train() -> tuple[int, int] | None:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        return context.get_world_rank(), context.get_world_size()
    except RuntimeError:
        return None  # not within a training function


def _environment() -> tuple[int, int] | None:
    found = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if not any(found.values()):
        return None
    try:
        return int(found["RANK"] or ""), int(found["WORLD_SIZE"] or "")
    except ValueError:
        # To go on as rank 0 of 1 would feed the same data to all ranks, and nobody would notice.
        said = " and ".join(f"{name}={value or ''}" for name, value in found.items())
        message = f"{said} in the environment say no rank: give rank and world_size"
        raise ValueError(message) from None
