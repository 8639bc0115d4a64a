"""A loader in the shape of torch's `DataLoader`, for trainers that ask for one.

Trainers look at a `DataLoader` to take it apart: they deal its batches out to ranks, and after a
restart they read and throw away what was trained on. Here both would lose data, as batches are made
for a rank, and a state says where to go on. So the parts they take are made to fit: what a sampler
gives out are the numbers of batches, and skipping numbers reads nothing.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from stoker.torch import prefetch
from stoker.trainers import accelerate
from stoker.trainers.passes import Passes, check_loader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stoker.trainers.passes import Loader


class DataLoader(torch.utils.data.DataLoader):
    """A loader as a torch `DataLoader`, whose state is that of the batch that was trained on last.

    It gives dicts of tensors on `device`, finished, all that the model's `forward` takes. A loop
    over it is one pass, or what remains of it; the next loop is the next pass. Its state is that of
    the loader, as it was after the batch that a loop was given last, and may be loaded by any other
    loader of the recipe, on any number of ranks that divides `plan.lanes`.

    - Make one for a loader, and keep it: what it has copied ahead is read again by another, which
      goes on after the batch that was given last.
    - `len` is that of the loader: TypeError where the run is endless or its end not yet known.
    - `set_epoch` does nothing: the order of each epoch follows from the recipe.
    - `accelerator.prepare` gives it back as it is. `save_state` and `load_state` take it along.
    - Skipping its first batches (`skip_first_batches`, or `Trainer` without `ignore_data_skip`)
      costs nothing where a state was loaded, as that says where to go on. Without one they are
      read, and left out.

    Args:
        loader: A `stoker.Loader` or `stoker.ray.RayLoader` of this rank.
        device: Where batches are put; `accelerator.device`, say. They are copied there ahead of
            their use, as by `stoker.torch.prefetch`.
        dtype: Element type of `pixel_values`; see `stoker.Batch.to`.

    Raises:
        TypeError: `loader` is something else.
    """

    # What Accelerate asks: not to be dealt out once more, and to be saved with the rest.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    remainder = -1

    def __init__(
        self,
        loader: Loader,
        device: torch.device | str | int = "cpu",
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.loader = check_loader(loader)
        self._source = _Source(Passes(prefetch(loader, device, dtype=dtype)))
        super().__init__(self._source, batch_sampler=_Numbers(loader), collate_fn=_as_it_is)

    def __iter__(self) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        with accelerate.active(self):
            for numbers in self.batch_sampler:
                try:
                    batch = self._source.__getitems__(numbers)
                except StopIteration:
                    return
                yield batch

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch that was given last is the last of its pass, as far as is known."""
        return self._source.at_end

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the order of each epoch follows from the recipe."""

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the batch that was given last; see `stoker.Loader.state_dict`."""
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there; see `stoker.Loader.load_state_dict`.

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
        """
        self._source.load_state_dict(state)


class Batches(torch.utils.data.IterableDataset):
    """A loader as a torch `IterableDataset` of finished batches: dicts of tensors on the CPU.

    For what insists on one: `DataLoader(Batches(loader), batch_size=None)`, in one process, or
    where nothing deals its batches out to ranks, as they are this rank's already.

    Raises:
        TypeError: `loader` is something else.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = check_loader(loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        refuse_workers()
        return (batch.to("cpu") for batch in self.loader)

    def __len__(self) -> int:
        return len(self.loader)


class _Source(torch.utils.data.Dataset):
    """Gives the next batch whatever number is asked for, and knows the state that follows it."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._state: dict[str, Any] | None = None
        self._restored = False
        self._expected: int | None = None
        self._over = False
        self.at_end = False

    def __getitems__(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The next batch.

        A number that does not follow the one before is the first of a loop. One beyond the next
        batch says that those between were skipped.

        Raises:
            StopIteration: The pass is over.
        """
        refuse_workers()
        (number,) = numbers
        if number != self._expected:
            self._over = False
            self._passes.begin()
        self._expected = number + 1
        if self._over:
            raise StopIteration
        if not self._restored:
            while self._passes.place(self.state_dict()) < number:
                self._take()
        return self._take()

    def _take(self) -> dict[str, Any]:
        try:
            batch = self._passes.take()
        except StopIteration:
            self._state = self._passes.loader.state_dict()
            self._restored, self._over = False, True
            raise
        self._state = batch.state_dict()
        self.at_end = self._passes.complete(self._state)
        self._restored = self._restored and not self.at_end
        return batch

    def state_dict(self) -> dict[str, Any]:
        return self._passes.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._passes.loader.load_state_dict(state)
        self._state, self._expected = None, None
        self._restored, self.at_end = True, False


class _Numbers(torch.utils.data.Sampler):
    """The numbers of batches, one at a time, in the place of a batch sampler."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        return ([number] for number in itertools.count())

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the order of each epoch follows from the recipe."""


def refuse_workers() -> None:
    """Raises RuntimeError in a worker process of a torch `DataLoader`.

    Each worker would give all batches of the rank, and nobody would notice.
    """
    info = torch.utils.data.get_worker_info()
    if info is not None:
        raise RuntimeError(
            f"a stoker loader was put into a DataLoader with num_workers={info.num_workers}, each "
            "of which would give all of its batches: set num_workers=0; it has threads of its own "
            "(engine.workers)"
        )


def _as_it_is(batch: dict[str, Any]) -> dict[str, Any]:
    return batch
