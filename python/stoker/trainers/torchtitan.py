"""For torchtitan, and other trainers that take pairs of inputs and labels. Needs only torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.stateful import Stateful

from stoker.trainers import data_loader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from stoker.trainers.passes import Loader


class DataLoader(Stateful):
    """Pairs of what a model takes and the labels, as torchtitan's trainer takes them.

    Its state is that of `stoker.trainers.DataLoader`, the same on all ranks, so a distributed
    checkpoint has it once, and it may be loaded on any number of ranks that divides `plan.lanes`.
    torchtitan stops where its loader ends: give the recipe no `plan.epochs`, or enough of them.

    Args:
        loader: A `stoker.Loader` or `stoker.ray.RayLoader`; with tensor, pipeline or context
            parallelism one that was made with `group`.
        device: Where batches are put.
        dtype: Element type of `pixel_values`; see `stoker.Batch.to`.

    Raises:
        TypeError: `loader` is something else.
    """

    def __init__(
        self,
        loader: Loader,
        device: torch.device | str | int = "cpu",
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._batches = data_loader.DataLoader(loader, device, dtype=dtype)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], torch.Tensor]]:
        for batch in self._batches:
            labels = batch.pop("labels")
            yield batch, labels

    def __len__(self) -> int:
        return len(self._batches)

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the batch that was given last."""
        return self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:  # type: ignore[override]
        """Goes on there.

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
        """
        self._batches.load_state_dict(state)
