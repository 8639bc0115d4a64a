"""Keeps workers where they belong: starts, replaces and ends them, on a thread of its own.

Every second it looks at the nodes that live and at what placement says of them, and makes it so.
Here calls to Ray may take long; batches do not wait for them. Workers belong to the process that
made them and end with it, however it ends; Ray restarts none, for what a dead one was making is
already being made elsewhere.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from stoker.ray import placement
from stoker.ray.dispatch import Dispatcher, Member, brief
from stoker.ray.trouble import Trouble
from stoker.ray.worker import SLOTS, THREADS, Answer, Piece, StokerWorker

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from stoker._native import Front
    from stoker.ray.roster import Roster

EVERY = 1.0
"""Seconds between two looks at the cluster."""

SOON = 0.1
"""The same while the ranks are about to say where they are."""

ROSTER = 3.0
"""Seconds that the other ranks have to say where they are, before workers are placed without."""

LAST = 2.0
"""Seconds that closing waits for a call to Ray to return."""

LONGEST = 300.0
"""Seconds that a worker may take to start; most of them it waits for its CPUs to become free."""

PARCEL = 8 << 20
"""Bytes of an index that are sent at once."""

log = logging.getLogger("stoker.ray")


@dataclass(eq=False)
class Hired:
    """A worker, from the moment it is asked for."""

    number: int
    share: placement.Seat
    """The seat as placement had it."""
    seat: placement.Seat
    """The seat as it was to be had: of fewer cores, where others have taken some."""
    address: str
    handle: Any
    since: float
    ready: float | None = None
    lacking: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """What all workers are to know."""

    open_maker: Callable[..., Any]
    document: dict[str, Any]
    front: Front
    """Has the indexes, and the sizes of samples."""
    own: set[str]
    """Keys of the section `engine` that the recipe sets itself."""

    def overrides_for(self, seat: placement.Seat) -> dict[str, Any]:
        """The seat's share of its node, where the recipe does not say."""
        share = {"workers": seat.cpus, "memory": seat.memory}
        return {f"engine.{key}": share[key] for key in share.keys() - self.own}


class Fleet:
    """The workers of one rank.

    Args:
        work: What they are to make.
        wish: Where the user wants them.
        roster: Where the ranks are.
        place: This rank and what it has reserved; its hosts are looked up in the roster.
        room: Bytes for batches on this node that the user set, if they did.
    """

    def __init__(
        self,
        *,
        work: Work,
        wish: placement.Wish,
        roster: Roster,
        place: placement.Place,
        room: int | None,
    ) -> None:
        self.trouble = Trouble(wish, time.monotonic())
        self._work, self._wish, self._roster = work, wish, roster
        self._place, self._room = place, room
        self._dispatcher: Dispatcher
        self._remote: Callable[[int], int]
        self._hired: dict[int, Hired] = {}
        self._numbers = 0
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stoker-ray-fleet", daemon=True)
        self._begun = time.monotonic()

    def start(self, dispatcher: Dispatcher, remote: Callable[[int], int]) -> None:
        """Begins.

        Args:
            dispatcher: Is given the workers that are ready.
            remote: Says how many other nodes to use, of as many as there are.
        """
        self._dispatcher, self._remote = dispatcher, remote
        self._thread.start()

    def ended(self, number: int, why: str | None) -> None:
        """A worker is to be ended; `why` says what it did wrong, if it did. From any thread."""
        self._events.put(lambda: self._end(number, why))

    def stop(self) -> None:
        """Ends the thread and all workers."""
        self._events.put(None)
        # Where the head node is away the thread may hang in Ray; workers then end with the process.
        self._thread.join(LAST)

    @property
    def starting(self) -> int:
        """Workers that are not ready yet."""
        return sum(hired.ready is None for hired in list(self._hired.values()))

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                event = self._events.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + EVERY
                if self._trying(self._survey):
                    due = time.monotonic() + SOON
                continue
            if event is None:
                break
            self._trying(event)
        self._trying(self._end_all)

    def _trying(self, step: Callable[[], bool | None]) -> bool | None:
        """Does a step, if there is a Ray to do it with.

        The head node may be away for a while. Batches go on being made without it, and what could
        not be done is seen again at the next look.
        """
        if not ray.is_initialized():
            return None  # some calls would start a Ray of their own
        try:
            return step()
        except Exception as error:
            why = f"the cluster could not be looked after: {brief(error)}"
            log.warning("%s", why, exc_info=log.isEnabledFor(logging.DEBUG))
            self.trouble.failed("", why, error, 0.0, time.monotonic())
            return None

    def _end_all(self) -> None:
        for hired in list(self._hired.values()):
            ray.kill(hired.handle, no_restart=True)
        self._roster.leave()

    def _survey(self) -> bool:
        """Looks at the cluster and puts it right; says whether to look again soon."""
        now = time.monotonic()
        self._roster.enter()
        nodes = nodes_alive()
        hosts, trainers = self._roster.read(), placement.trainers(nodes)
        place = self._place._replace(hosts=hosts, trainers=trainers)
        if len(place.hosts) < place.of and now - self._begun < ROSTER:
            return True
        self._put_right(nodes, place, now)
        return False

    def _put_right(self, nodes: list[placement.Node], place: placement.Place, now: float) -> None:
        self._fit(nodes, place)
        remote = self._remote(placement.elsewhere(nodes, self._wish, place))
        wanted = placement.seats(nodes, self._wish, place, remote)
        self.trouble.saw(nodes, wanted, any(h.ready for h in self._hired.values()), now)
        by_id = {node.id: node for node in nodes}
        for hired in list(self._hired.values()):
            if hired.seat.node not in by_id:
                self._end(hired.number, "its node is gone")
            elif hired.ready is None and now - hired.since > LONGEST:
                self._end(hired.number, f"it has not started for {LONGEST:.0f} s")
            elif not any(fits(hired.share, seat) for seat in wanted):
                self._dismiss(hired)
        taken = {(hired.seat.node, hired.seat.number) for hired in self._hired.values()}
        free = {node.id: node.free for node in nodes}
        for seat in wanted:
            if (seat.node, seat.number) not in taken and self.trouble.may_start(seat.node, now):
                free[seat.node] -= self._hire(seat, by_id[seat.node], free[seat.node], now)

    def _fit(self, nodes: list[placement.Node], place: placement.Place) -> None:
        """Gives the batches on this node the room that they may take."""
        mine = next((node for node in nodes if node.id == place.node), None)
        if mine is None:
            return
        room = int(mine.store * placement.STORE_SHARE / place.here)
        schedule = self._dispatcher.schedule
        schedule.room = room if self._room is None else min(room, self._room)

    def _hire(self, seat: placement.Seat, node: placement.Node, free: int, now: float) -> int:
        """Asks for a worker; gives the CPUs that it reserves."""
        number, self._numbers = self._numbers, self._numbers + 1
        share, reserved = seat, seat.cpus
        if self._wish.cpus_per_worker is None:
            if free >= 1:
                # Others may have taken a part of the share; what is left is better than to wait.
                reserved = min(seat.cpus, free)
                seat = seat._replace(cpus=reserved)
            elif seat.node == self._place.node:
                # This rank, or another loader of its, has reserved all; it may use them itself.
                reserved = 0
        handle = (
            ray.remote(concurrency_groups=THREADS)(StokerWorker)
            .options(
                num_cpus=reserved,
                label_selector={"ray.io/node-id": seat.node},
                # Inside Ray Train children would join the trainers' placement group.
                scheduling_strategy="DEFAULT",
                max_restarts=0,
                max_task_retries=0,
            )
            .remote(self._work.open_maker)
        )
        hired = Hired(number, share, seat, node.address, handle, now)
        self._hired[number] = hired
        files = [
            [(str(it), it.stat().st_size) for it in of] for of in self._work.front.index_files()
        ]
        self._then(hired, handle.lacks.remote(files), self._send)
        return reserved

    def _then(self, hired: Hired, ref: ray.ObjectRef, step: Callable[[Hired, Any], None]) -> None:
        """Goes on with a worker once it has answered."""

        def answered(done: Future) -> None:
            self._events.put(lambda: self._next(hired, done, step))

        ref.future().add_done_callback(answered)

    def _next(self, hired: Hired, done: Future, step: Callable[[Hired, Any], None]) -> None:
        if hired.number not in self._hired:
            return
        error = done.exception()
        if error is None:
            step(hired, done.result())
        else:
            self._end(hired.number, f"it died while it started: {brief(error)}", error)

    def _send(self, hired: Hired, lacking: list[str]) -> None:
        """Sends the index, a parcel at a time, and then has the data opened."""
        hired.lacking = lacking
        self._send_on(hired, 0)

    def _send_on(self, hired: Hired, offset: int) -> None:
        if not hired.lacking:
            overrides = self._work.overrides_for(hired.seat)
            opened = hired.handle.open.remote(self._work.document, overrides)
            self._then(hired, opened, self._opened)
            return
        pieces, hired.lacking, then = parcel(hired.lacking, offset)
        kept = hired.handle.keep.remote(pieces)
        self._then(hired, kept, lambda hired, _: self._send_on(hired, then))

    def _opened(self, hired: Hired, answer: Answer) -> None:
        if answer.error is not None:
            self._end(hired.number, brief(answer.error), answer.error)
            return
        both = zip(self._work.front.sizes_known(), answer.sizes_known, strict=True)
        self._tell_sizes(hired, [it for it, (here, there) in enumerate(both) if here > there], 0)

    def _tell_sizes(self, hired: Hired, datasets: list[int], row: int) -> None:
        """Sends the sizes of samples that its host may not know, a parcel at a time."""
        if not datasets:
            self._ready(hired)
            return
        sizes, then = self._work.front.sizes(datasets[0], row, PARCEL)
        told = hired.handle.add_sizes.remote(datasets[0], sizes)
        left = datasets[1:] if then is None else datasets
        self._then(hired, told, lambda hired, _: self._tell_sizes(hired, left, then or 0))

    def _ready(self, hired: Hired) -> None:
        hired.ready = time.monotonic()
        seat = hired.seat
        self._dispatcher.join(
            Member(
                number=hired.number,
                node=seat.node,
                address=hired.address,
                local=seat.node == self._place.node,
                slots=slots(seat),
                room=seat.room,
                handle=hired.handle,
            )
        )

    def _dismiss(self, hired: Hired) -> None:
        """Ends a worker that is no longer needed, once it has finished what it is making."""
        if hired.ready is None:
            self._end(hired.number, None)
        else:
            self._dispatcher.retire(hired.number)

    def _end(self, number: int, why: str | None, error: BaseException | None = None) -> None:
        hired = self._hired.pop(number, None)
        if hired is None:
            return
        self._dispatcher.leave(number)
        ray.kill(hired.handle, no_restart=True)
        if why is not None:
            log.warning("a data worker on %s is gone: %s", hired.address, why)
            now = time.monotonic()
            lived = 0.0 if hired.ready is None else now - hired.ready
            self.trouble.failed(hired.seat.node, why, error, lived, now)


def parcel(paths: list[str], offset: int) -> tuple[list[Piece], list[str], int]:
    """The next pieces of some files, from a byte of the first on; what is left; from which byte."""
    pieces, room = [], PARCEL
    while paths and room:
        size = Path(paths[0]).stat().st_size
        with Path(paths[0]).open("rb") as file:
            file.seek(offset)
            content = file.read(room)
        pieces.append(Piece(paths[0], offset, size, content))
        room -= len(content)
        offset += len(content)
        if offset >= size:
            paths, offset = paths[1:], 0
    return pieces, paths, offset


def slots(seat: placement.Seat) -> int:
    """Batches that a worker makes at once: one is copied, one is ended, others use the cores."""
    return min(SLOTS, 3 + seat.cpus // 4)


def fits(has: placement.Seat, wanted: placement.Seat) -> bool:
    """Whether a worker may stay as it is: its share has not shrunk, and not grown by much.

    Shares change when ranks become known or nodes come and go.
    """
    same = (has.node, has.number) == (wanted.node, wanted.number)
    return same and has.cpus <= wanted.cpus < max(1.5 * has.cpus, has.cpus + 1)


def nodes_alive() -> list[placement.Node]:
    """The nodes of the cluster."""
    free = _free_cpus()
    found = []
    for node in ray.nodes():
        resources = node["Resources"]
        if node["Alive"]:
            cpus = int(resources.get("CPU", 0))
            found.append(
                placement.Node(
                    id=node["NodeID"],
                    address=node["NodeManagerAddress"],
                    cpus=cpus,
                    free=free.get(node["NodeID"], cpus),
                    gpus=int(resources.get("GPU", 0)),
                    memory=int(resources.get("memory", 0)),
                    store=int(resources.get("object_store_memory", 0)),
                    labels=node.get("Labels", {}),
                )
            )
    return found


def _free_cpus() -> dict[str, int]:
    """CPUs that are not reserved, by node; Ray has it only in a private place."""
    try:
        from ray._private import state

        found = state.available_resources_per_node()
    except Exception:
        log.debug("free CPUs are not known", exc_info=True)
        return {}
    return {node: int(resources.get("CPU", 0)) for node, resources in found.items()}
