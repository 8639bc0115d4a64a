"""Batches on a device before they are needed: the copy of the next one runs beside the model.

Copies and what finishes `u8` pixels are launched on a stream of their own, from pinned memory, so
neither the host nor the trainer's stream waits for a copy that was launched in time. The trainer's
thread does all of it, in `next`: a batch is taken ahead only if the loader has it ready, so nothing
ever waits for a batch that is not needed yet, and what the loader's report calls waiting is.

Who owns what: a batch's memory is let go of once the event behind its copy has come, whatever
becomes of the tensors; the tensors are the trainer's.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch

from stoker._pinned import Pinned
from stoker._streams import Streams, resolve
from stoker.torch import move

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from stoker import Batch, Loader, Report
    from stoker.ray import RayLoader


class DeviceBatch(dict[str, Any]):
    """A batch on a device: a dict, all that the model's `forward` takes, as `Batch.to` gives it.

    Beside what is in it, it knows what the `stoker.Batch` knew.
    """

    sequence: int
    """Its place in the global sequence of batches; see `stoker.Batch.sequence`."""
    name: tuple[int, int]
    """Lane, and number in the lane."""
    samples: list[tuple[int, int]]
    """Dataset and row of each sample; see `stoker.Batch.samples`."""
    sample_mask: list[bool]
    """For each place whether it is a sample to reckon with; see `stoker.Batch.sample_mask`."""
    _state: dict[str, Any]

    @classmethod
    def of(cls, batch: Batch, moved: dict[str, Any]) -> DeviceBatch:
        """What was made of a batch."""
        made = cls(moved)
        made.sequence, made.name = batch.sequence, batch.name
        made.samples, made.sample_mask = batch.samples, batch.sample_mask
        made._state = batch.state_dict()
        return made

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after it; see `stoker.Loader.state_dict`."""
        return self._state


class _Copied(NamedTuple):
    batch: DeviceBatch
    event: Any


class _UnderWay:
    """Batches whose memory the device may still be reading, in the order of their copies."""

    def __init__(self) -> None:
        self._copies: deque[tuple[Any, Batch]] = deque()

    def add(self, event: Any, batch: Batch) -> None:
        self._copies.append((event, batch))

    def settle(self) -> None:
        """Lets go of those that were copied."""
        while self._copies and self._copies[0][0].query():
            self._copies.popleft()

    def wait(self, left: int = 0) -> None:
        """Waits until no more than so many are left."""
        while len(self._copies) > left:
            self._copies[0][0].synchronize()
            self._copies.popleft()


class _Front:
    """What who is in front of a loader has given of what it took; another can go on there."""

    def __init__(self) -> None:
        self.given: dict[str, Any] | None = None
        """State after the batch that was given last, while others are taken."""
        self.taken: dict[str, Any] | None = None
        """The loader's state after these; None where there are none."""

    def hand_back(self, loader: Loader | RayLoader) -> None:
        """Has the loader go on after what was given, unless it was sent elsewhere meanwhile."""
        if self.taken is not None and self.taken == loader.state_dict():
            loader.load_state_dict(self.given)
        self.given = self.taken = None


_FRONTS: weakref.WeakKeyDictionary[Any, _Front] = weakref.WeakKeyDictionary()
"""By loader, who took batches of it last."""


class Prefetcher:
    """The batches of a loader on a device, copied ahead of their use: an iterator.

    `stoker.torch.prefetch` makes it. It takes the loader's place in a loop: what it gives are the
    loader's batches as `Batch.to` gives them (`DeviceBatch`, a dict), in the same order, and errors
    come where the loader would raise them. A loop goes on where the last one stopped, and begins
    anew after the end.

    Save its `state_dict`, not the loader's, which is ahead of it; and leave the loader alone
    meanwhile. Of several over one loader, the one that is asked goes on after the batch that any of
    them gave last, and what another had taken ahead is read again.
    """

    def __init__(
        self,
        loader: Loader | RayLoader,
        device: torch.device | str | int,
        *,
        depth: int = 2,
        dtype: torch.dtype | None = None,
        _streams: Streams | None = None,
        _pinned: Pinned | None = None,
    ) -> None:
        if not hasattr(loader, "_next_if_ready"):
            raise TypeError(
                "a stoker.Loader or stoker.ray.RayLoader is expected, not "
                f"{type(loader).__qualname__}"
            )
        if depth < 1:
            raise ValueError(f"depth={depth} batches on the device are too few: 1 or more")
        self.loader = loader
        self.device = resolve(device)
        self._depth = depth
        self._dtype = dtype
        self._streams = _streams or Streams(self.device)
        self._stream = self._streams.new()
        self._pinned = _pinned
        if _pinned is None and self.device.type == "cuda":
            self._pinned = Pinned(torch.cuda.cudart(), self._streams)
        self._raw: Batch | None = None
        """Taken, and not on its way yet: copying it may be interrupted, and is done again."""
        self._ahead: deque[_Copied] = deque()
        self._under_way = _UnderWay()
        self._end_seen = False
        """The loader has none after those that were taken."""
        self._state: dict[str, Any] | None = None
        self._front = _Front()
        # A batch must not be used again under a copy, though nobody waits for the rest of it.
        weakref.finalize(self, _give_up, self._under_way)

    def __iter__(self) -> Self:
        """Goes on where the last loop stopped; begins anew after the end."""
        self._come_to_front()
        if not self._end_seen:  # else the end is yet to come here
            iter(self.loader)
        return self

    def __next__(self) -> DeviceBatch:
        """The next batch, which this thread's stream uses once it is there.

        Raises:
            StopIteration: The run is over.
            Exception: What the loader raises; see `stoker.Loader.__next__`.
        """
        self._come_to_front()
        self._under_way.settle()
        if self._raw is not None:
            self._copy()
        if not self._ahead:
            self._take()
        self._look_ahead()
        batch, event = self._ahead[0]
        tensors = [value for value in batch.values() if isinstance(value, torch.Tensor)]
        self._streams.follow(event, tensors)
        self._ahead.popleft()
        self._state = batch.state_dict()
        self._note()
        return batch

    def _come_to_front(self) -> None:
        """Where another over the loader was asked last, goes on after what that gave."""
        before = _FRONTS.get(self.loader)
        if before is self._front:
            return
        if before is not None:
            before.hand_back(self.loader)
            self._forget()
            self._state = None
        _FRONTS[self.loader] = self._front

    def _note(self) -> None:
        """Takes note how far the loader is, and how far the trainer."""
        self._front.given, self._front.taken = self._state, None
        if self._end_seen:
            self._front.taken = self.loader.state_dict()
        elif self._raw is not None:
            self._front.taken = self._raw.state_dict()
        elif self._ahead:
            self._front.taken = self._ahead[-1].batch.state_dict()

    def _take(self) -> None:
        """Waits for the next batch, and launches its copy."""
        if self._state is None:
            self._state = self.loader.state_dict()
        if self._end_seen:
            self._end_seen, self._state = False, None
            raise StopIteration
        try:
            self._raw = self.loader._next_if_ready()
            if self._raw is None:
                # What the engine makes next may need the memory of what is being copied; it
                # promises room beside one batch.
                self._under_way.wait(left=1)
                self._raw = next(self.loader)
        except StopIteration:
            self._state = None
            raise
        self._note()
        self._copy()

    def _look_ahead(self) -> None:
        """Launches the copies of what is ready, as far as `depth` allows."""
        while len(self._ahead) < self._depth and not self._end_seen:
            try:
                self._raw = self.loader._next_if_ready()
            except StopIteration:
                self._end_seen = True
                self._note()
            except Exception:
                # It is raised when its batch is due, if it still stands in the way then.
                break
            if self._raw is None:
                break
            self._note()
            self._copy()

    def _copy(self) -> None:
        """Launches the copy of the batch that was taken."""
        batch = self._raw
        if self._pinned is not None:
            self._pinned.pin(batch)
        with self._streams.on(self._stream):
            moved = None
            try:
                moved = move(batch, self.device, self._streams.asynchronous, self._dtype)
            finally:
                # Copies that were launched before an error are under way too.
                event = self._streams.mark(self._stream)
                self._under_way.add(event, batch)
        self._ahead.append(_Copied(DeviceBatch.of(batch, moved), event))
        self._raw = None

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the last batch that this gave, or after the end.

        As `stoker.Loader.state_dict`, and for any loader of the recipe: batches that were only
        copied ahead are yet to come.
        """
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken; see `stoker.Loader.load_state_dict`.

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
            StoppedError: The loader was closed.
        """
        self.loader.load_state_dict(state)
        _FRONTS[self.loader] = self._front
        self._forget()
        self._state = None

    def _forget(self) -> None:
        self._ahead.clear()
        self._raw, self._end_seen = None, False
        self._note()

    def report(self) -> Report:
        """The loader's."""
        return self.loader.report()

    def close(self) -> None:
        """Closes the loader, then waits for the copies under way; see `stoker.Loader.close`."""
        self.loader.close()
        self._state = self.state_dict()
        self._forget()
        self._under_way.wait()

    def __len__(self) -> int:
        """That of the loader."""
        return len(self.loader)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def rank(self) -> int:
        """Which rank the loader feeds, from 0."""
        return self.loader.rank

    @property
    def world_size(self) -> int:
        """Of how many ranks."""
        return self.loader.world_size


def _give_up(under_way: _UnderWay) -> None:
    # A device that failed copies nothing any more, and has told the trainer.
    with suppress(RuntimeError):
        under_way.wait()
