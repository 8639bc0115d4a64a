"""Which part of the data this process is fed.

What counts is the rank among those that have different data. Processes that hold parts of one copy
of the model (tensor, pipeline and context parallel ones) train on the same batches, so they share a
rank. Where nothing says for certain who shares data, that is refused: the wrong guess would feed
some batches twice and others never, and nobody would notice.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import DeviceMesh, ProcessGroup

APART = frozenset({"dp", "ddp", "data", "batch", "replicate", "shard"})
"""Words in the names of mesh dimensions along which the data differ: `dp`, `dp_shard`, …"""

TOGETHER = frozenset(
    {"tp", "pp", "cp", "sp", "mp", "tensor", "pipeline", "context", "sequence", "model"}
)
"""Words in the names of those along which the data are the same."""

LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables by which launchers that set no RANK say how many processes they started."""

ADVICE = "give its data-parallel dimension alone, that one's process group, or rank and world_size"


def resolve(
    rank: int | None, world_size: int | None, group: DeviceMesh | ProcessGroup | None = None
) -> tuple[int, int]:
    """Finds rank and world size.

    As given, or as the data-parallel group says; else those of torch.distributed, if the program
    has initialised it; else Ray Train's, in a training function; else the environment's RANK and
    WORLD_SIZE, which launchers set; else 0 of 1.
    """
    if group is not None:
        if rank is not None or world_size is not None:
            raise TypeError("group says rank and world_size: give either it or them")
        return _of_group(group)
    if (rank is None) != (world_size is None):
        raise TypeError("rank and world_size go together: give both or neither")
    if rank is None or world_size is None:
        workers = data_loader_workers()
        if workers is not None and workers > 1:
            raise ValueError(
                f"this is one of {workers} worker processes of a DataLoader, and a loader made in "
                "each would give the same batches again: use the loader itself, which has threads "
                "of its own, or set num_workers to 0 or 1"
            )
        rank, world_size = _torch_distributed() or _ray_train() or _environment() or (0, 1)
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}: ranks count from 0")
    return rank, world_size


def _of_group(group: Any) -> tuple[int, int]:
    # Who has a group has imported this; who has not need not have torch.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available():
        if isinstance(group, distributed.DeviceMesh):
            return _of_mesh(group)
        if isinstance(group, distributed.ProcessGroup):
            rank, world_size = distributed.get_rank(group), distributed.get_world_size(group)
            if rank >= 0:
                return rank, world_size
            group = distributed.GroupMember.NON_GROUP_MEMBER
        if group == distributed.GroupMember.NON_GROUP_MEMBER:
            raise ValueError(
                "this process is not in the group: give the data-parallel group that it is in, or "
                "rank and world_size"
            )
    raise TypeError(
        "group is a DeviceMesh or a ProcessGroup of torch.distributed, not "
        f"{type(group).__qualname__}; without torch.distributed give rank and world_size"
    )


def _of_mesh(mesh: DeviceMesh) -> tuple[int, int]:
    names = mesh.mesh_dim_names or tuple(f"dimension {number}" for number in range(mesh.ndim))
    sizes = ", ".join(f"{name}={size}" for name, size in zip(names, mesh.shape, strict=True))
    said = f"the mesh ({sizes})"
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(f"this process is not in {said}: give the mesh that it is in")
    kinds = [_differ(name) for name in names]
    if kinds == [None] and not TOGETHER & _words(names[0]):
        kinds = [True]  # who gives one dimension alone says by that which one it is
    dimensions = list(zip(names, mesh.shape, place, kinds, strict=True))
    unclear = [name for name, size, _, differ in dimensions if differ is None and size > 1]
    if unclear:
        named = " and ".join(unclear)
        raise ValueError(f"{said} does not say whether data differ along {named}: {ADVICE}")
    if True not in kinds:
        raise ValueError(
            f"{said} has no data-parallel dimension: give the mesh that has it, or rank=0 and "
            "world_size=1 where all processes are to have the same batches"
        )
    rank, world_size = 0, 1
    for _, size, at, differ in dimensions:
        if differ:
            rank, world_size = rank * size + at, world_size * size
    return rank, world_size


def _differ(name: str) -> bool | None:
    """Whether the data differ along a dimension; None where its name does not say so."""
    apart, together = APART & _words(name), TOGETHER & _words(name)
    return None if bool(apart) == bool(together) else bool(apart)


def _words(name: str) -> set[str]:
    return set(name.lower().split("_"))


def _torch_distributed() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _ray_train() -> tuple[int, int] | None:
    context = _train_context()
    return context and (context.get_world_rank(), context.get_world_size())


def _train_context() -> Any:
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        context.get_world_size()
    except RuntimeError:
        return None  # not within a training function
    return context


def _environment() -> tuple[int, int] | None:
    found = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    if not any(found.values()):
        return _alone()
    try:
        return int(found["RANK"] or ""), int(found["WORLD_SIZE"] or "")
    except ValueError:
        # To go on as rank 0 of 1 would feed the same data to all ranks, and nobody would notice.
        said = " and ".join(f"{name}={value or ''}" for name, value in found.items())
        message = f"{said} in the environment say no rank: give rank and world_size"
        raise ValueError(message) from None


def _alone() -> None:
    """Refuses to take one of several processes for the only one."""
    for name in LAUNCHERS:
        count = os.environ.get(name, "1")
        if count not in ("", "1"):
            raise ValueError(
                f"{name}={count} says that this is one of several processes, but nothing says "
                "which of them share data: initialise torch.distributed before the loader is made, "
                "or give rank and world_size (0 and 1 where each is to have all data)"
            )


def data_loader_workers() -> int | None:
    """Finds how many worker processes a DataLoader has, in one of them; elsewhere None."""
    # Who is such a worker has imported this; who is none need not have torch.
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else info.num_workers


def local_world_size() -> int:
    """Finds how many ranks share this machine.

    As Ray Train says, in a training function; else the environment's LOCAL_WORLD_SIZE, which
    launchers set; else 1.
    """
    train = _train_context()
    if train is not None:
        return train.get_local_world_size()
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    # What is no number says nothing: it only decides how much of the machine is used.
    return max(int(told), 1) if told.isascii() and told.isdigit() else 1
