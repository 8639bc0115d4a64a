"""The front door: a `stoker.Loader` whose batches are made by data workers on Ray.

Each rank owns its workers: it makes every call, so it owns what they return, and all of it ends
with the rank. Nobody coordinates the ranks; any worker can make any batch, so none is ever lost.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, Self

import ray
from ray.util.client import ray as client

from stoker._native import Front, Maker, _document
from stoker.errors import StoppedError
from stoker.ray import placement as where
from stoker.ray import report as reports
from stoker.ray.dispatch import Dispatcher
from stoker.ray.fleet import Fleet, Work
from stoker.ray.roster import Roster
from stoker.ray.schedule import Schedule
from stoker.ray.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from types import TracebackType

    from torch.distributed import DeviceMesh, ProcessGroup

    from stoker import Batch, Report
    from stoker.ray.calls import Call

PATIENCE = 0.1
"""Seconds that are waited at once; between them Python hears Ctrl-C."""

SHORTEST = 1.0
"""The shortest deadline, in seconds: pulses come once in one."""


class RayLoader:
    """Finished batches of one rank, in order, made by data workers on Ray: an iterator.

    The same interface, order and bytes as `stoker.Loader`, and interchangeable states. Batches lie
    in Ray's shared memory: `batch.numpy()` gives read-only arrays, `batch.torch()` tensors that
    refuse to be written to, `batch.to(device)` ordinary ones. They are shipped as `u8` and finished
    by `batch.to`, unless the recipe itself names `vision.pixels`.

    A worker or node that dies, hangs or is cut off delays the trainer by `deadline` and the time to
    make one batch at most, as long as another worker lives; batches and their order stay the same.

    Make it in each rank's process, after `ray.init()`. It can't be pickled.

    Args:
        recipe: As for `stoker.Loader`. Data and model files must be reachable under the same names
            from all nodes that workers are put on; the index of the data is sent to them.
        rank: This process in the data-parallel group, from 0; by default Ray Train's, else as for
            `stoker.Loader`.
        world_size: Size of that group; goes together with `rank`.
        group: That group, in place of the two; as for `stoker.Loader`.
        overrides: Values by path that replace the recipe's.
        placement: Where workers are put. `auto`: on this rank's node, and on nodes without ranks or
            accelerators as far as that measurably helps. `local`: on this rank's node only.
            `spread`: on this rank's node and its share of the nodes without ranks. `packed`: those
            of all ranks on the largest node.
        workers: How many, at most with `auto`; by default one on each node used.
        cpus_per_worker: Cores that each reserves and uses; by default the rank's share of the node.
        node_labels: Labels that a node must have, as in Ray's label selectors, such as
            `{"role": "data"}` or `{"role": "!trainer"}`.
        deadline: Seconds without an answer after which a worker's batches are made by others, at
            least 1.
        prefetch_bytes: Most bytes of batches ahead, on this node; by default, and at most, this
            rank's share of 60 % of its object store.

    Raises:
        RecipeError, DatasetError, FetchError, MachineError: As for `stoker.Loader`.
        RuntimeError: Ray is not running in this process.
        ValueError: An argument is not what it may be.
    """

    _read: Any = staticmethod(_document)
    _open_front: Any = Front
    _open_maker: Any = Maker

    def __init__(
        self,
        recipe: str | PathLike[str] | dict[str, Any],
        *,
        rank: int | None = None,
        world_size: int | None = None,
        group: DeviceMesh | ProcessGroup | None = None,
        overrides: Mapping[str, Any] | None = None,
        placement: where.Placement = "auto",
        workers: int | None = None,
        cpus_per_worker: int | None = None,
        node_labels: dict[str, str] | None = None,
        deadline: float = 5.0,
        prefetch_bytes: int | None = None,
    ) -> None:
        wish = where.Wish(placement, workers, cpus_per_worker, node_labels)
        _check(wish, deadline, prefetch_bytes)
        document = self._read(recipe, overrides)
        vision = document.get("vision") or {}
        if isinstance(vision, dict) and vision.get("pixels") is None:
            # An eighth of the bytes of f32 on every network card.
            document["vision"] = vision | {"pixels": "u8"}
        front = self._open_front(document, rank=rank, world_size=world_size, group=group)
        self._front = front
        self._placement = placement
        roster = Roster(front.rank, front.world_size, document)
        self._fleet = Fleet(
            work=Work(
                open_maker=self._open_maker,
                document=document,
                front=front,
                own=set(_sets(document, "engine")),
            ),
            wish=wish,
            roster=roster,
            place=where.Place(front.rank, front.world_size, roster.node, _reserved(), {}),
            room=prefetch_bytes,
        )
        schedule = Schedule(front.sequence_at, room=prefetch_bytes or 1 << 30, deadline=deadline)
        self._dispatcher = Dispatcher(schedule, self._fleet.ended, front.window)
        self._fleet.start(self._dispatcher, Watch(self._dispatcher, front.rank).remote)
        self._end = weakref.finalize(self, _end, self._dispatcher, self._fleet, front, os.getpid())

    def __iter__(self) -> Self:
        if self._front.ended:
            with self._dispatcher.changed:
                self._front.rewind()
                self._restart()
        return self

    def __next__(self) -> Batch:
        """Waits for the next batch.

        Raises:
            StopIteration: The run is over.
            ClusterError: There is no worker, or none that survives this batch.
            FetchError, SampleError, DatasetError, BudgetError, StoppedError: As `stoker.Loader`.
        """
        self._front.sequence_at(0)  # in a forked child that says so; locks would not
        begun = time.monotonic()
        counts = self._dispatcher.counts
        counts.waiting_since = begun
        try:
            with self._dispatcher.changed:
                call = self._wait()
                batch = self._hand_over(call, begun)
        finally:
            counts.waiting_since = None
        self._dispatcher.poke()
        return batch

    def _next_if_ready(self) -> Batch | None:
        """The next batch if it is here, else None; no wait is counted. Raises as `__next__`."""
        self._front.sequence_at(0)
        with self._dispatcher.changed:
            self._begin()
            call = self._look()
            if call is None:
                return None
            batch = self._hand_over(call, time.monotonic())
        self._dispatcher.poke()
        return batch

    def _hand_over(self, call: Call, begun: float) -> Batch:
        """Gives out what a call brought, after a wait that began then."""
        counts = self._dispatcher.counts
        blocked = time.monotonic() - begun
        batch = self._front.hand_over(self._dispatcher.values[call.number], blocked)
        if batch is None:  # that the run has ended is known only now
            self._restart()
            self._front.end()
            raise StopIteration
        self._dispatcher.schedule.handed_over()
        if counts.batches > 0:
            counts.blocked_seconds += blocked
            counts.network_seconds += _network(call, begun)
        counts.batches += 1
        return batch

    def _wait(self) -> Call:
        """Waits until the next batch is here; gives the call that it came by."""
        self._begin()
        while True:
            ready = self._look()
            if ready is not None:
                return ready
            self._dispatcher.changed.wait(PATIENCE)

    def _look(self) -> Call | None:
        """The call that the next batch came by, if it is here."""
        dispatcher = self._dispatcher
        if not self._end.alive:
            raise StoppedError("the loader is closed")
        if dispatcher.broken is not None:
            raise dispatcher.broken
        head = dispatcher.schedule.head()
        if head is None:
            self._front.end()
            raise StopIteration
        if head.error is not None:
            raise head.error
        if head.ready is not None:
            return head.ready
        trouble = self._fleet.trouble.error(time.monotonic())
        if trouble is not None:
            raise trouble
        return None

    def _begin(self) -> None:
        """Has batches asked for from the first `next` on, and from where the front stands."""
        schedule = self._dispatcher.schedule
        head = schedule.head()
        if head is not None and head.sequence != self._front.sequence_at(0):
            schedule.reset()
        if not schedule.begun:
            schedule.begun = True
            self._dispatcher.poke()

    def _restart(self) -> None:
        self._dispatcher.schedule.reset()

    def __len__(self) -> int:
        """Batches of this rank in the whole run.

        Raises:
            TypeError: The run is endless, or how long it is is not known yet; see `stoker.Loader`.
        """
        return len(self._front)

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

    def close(self) -> None:
        """Ends all workers and threads; from any thread, as often as you like.

        Batches that are already out stay valid. `report()` and `state_dict()` still answer.
        """
        self._end()

    def state_dict(self, *, batches_ago: int | None = None) -> dict[str, Any]:
        """Where to go on after the last batch that was handed over; see `stoker.Loader`."""
        return self._front.state_dict(batches_ago=batches_ago)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken, by this loader, another, or a `stoker.Loader`.

        Raises:
            CursorError: The state was taken with another recipe or other data, or is damaged.
            StoppedError: The loader was closed.
        """
        self._front.sequence_at(0)
        if not self._end.alive:
            raise StoppedError("the loader is closed")
        with self._dispatcher.changed:
            self._front.load_state_dict(state)
            self._restart()
        self._dispatcher.poke()

    def report(self) -> Report:
        """What has been done so far, and who waited for whom.

        As that of a `stoker.Loader`, with the work of all workers added up; `report.ray` has Ray's
        part. What workers did is as of their last pulse, a second ago at most.
        """
        return reports.read(self._front.report(), self._dispatcher, self._fleet, self._placement)

    def stats(self, prefix: str = "stoker/") -> dict[str, float]:
        """The numbers of the report as a flat dict, for W&B and TensorBoard."""
        return self.report().stats(prefix)

    def left(self) -> int:
        """Batches of this rank that are still to come; see `stoker.Loader`."""
        return self._front.left()

    @property
    def metrics_address(self) -> str | None:
        """Where this rank's part is read over HTTP; None without `engine.metrics`.

        It has what was delivered and waited for; what workers did is in `report()` alone.
        """
        return self._front.metrics_address

    @property
    def rank(self) -> int:
        """Which rank this loader feeds, from 0."""
        return self._front.rank

    @property
    def world_size(self) -> int:
        """Of how many ranks."""
        return self._front.world_size

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RayLoader belongs to the process that made it, as its workers do: make one in each "
            "rank, from the recipe, and pass state_dict() on"
        )


def _sets(document: dict[str, Any], section: str) -> dict[str, Any]:
    """What a recipe sets in a section: `None` is the default. What is no section is told later."""
    found = document.get(section)
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if value is not None}


def _check(wish: where.Wish, deadline: float, prefetch_bytes: int | None) -> None:
    where.check(wish)
    if not deadline >= SHORTEST:
        raise ValueError(f"deadline={deadline!r} is not a number of seconds from {SHORTEST:g}")
    if prefetch_bytes is not None and prefetch_bytes < 1:
        raise ValueError(f"prefetch_bytes={prefetch_bytes!r} is not a number of bytes from 1")
    if not ray.is_initialized():
        raise RuntimeError("Ray is not running in this process: call ray.init() first")
    if client.is_connected():
        raise RuntimeError(
            "a RayLoader needs the shared memory of a node, which Ray Client does not have: run "
            "the trainer on a node of the cluster, as a job or an actor"
        )


def _network(call: Call, begun: float) -> float:
    """Seconds that were waited for a batch that was finished, elsewhere."""
    return 0.0 if call.local else max(0.0, call.arrived - max(begun, call.finished))


def _reserved() -> float:
    """CPUs that this process has reserved: none, where it is a driver."""
    try:
        return float(ray.get_runtime_context().get_assigned_resources().get("CPU", 0.0))
    except AssertionError:
        return 0.0


def _end(dispatcher: Dispatcher, fleet: Fleet, front: Any, process: int) -> None:
    if os.getpid() != process:
        return  # a forked child has neither the threads nor the workers
    fleet.stop()
    dispatcher.stop()
    front.close()
