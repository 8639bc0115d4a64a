"""Across machines: `RayLoader` has data workers on all nodes of a Ray cluster feed each rank.

    import ray, stoker.ray

    ray.init()
    with stoker.ray.RayLoader("recipe.toml", rank=rank, world_size=world_size) as loader:
        for batch in loader:
            loss = model(**batch.to("cuda")).loss

Needs Ray: `pip install 'stoker[ray]'`.
"""

try:
    import ray as _ray  # noqa: F401
except ModuleNotFoundError as _error:
    _message = "stoker.ray needs Ray, which is not installed: pip install 'stoker[ray]'"
    raise ModuleNotFoundError(_message, name="ray") from _error

from typing import Any

from stoker.ray.loader import RayLoader

__all__ = ["RayLoader", "dataset"]


def __getattr__(name: str) -> Any:
    """`dataset` is imported when it is used: Ray Data takes seconds, and needs pyarrow."""
    if name == "dataset":
        from stoker.ray.data import dataset

        return dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
