"""Carries out what the schedule decides: one thread, which nothing blocks.

Everything that happens anywhere (Ray's answers, workers that join, the trainer's next) is put into
one queue and told to the schedule in that thread, under the lock that the trainer's `next` takes
too. What is then to be done are calls to Ray that return at once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError

from stoker.errors import FetchError, StoppedError
from stoker.ray.calls import Action, Ask, Drop, GiveUp, Pull
from stoker.ray.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ray import ObjectRef
    from ray.actor import ActorHandle

    from stoker import Batch
    from stoker._native import Window
    from stoker.ray.schedule import Schedule
    from stoker.ray.worker import Answer

TICK = 0.25
"""Seconds after which clocks are looked at where nothing happens."""

PULSE = 1.0
"""Seconds between two pulses of a worker."""

log = logging.getLogger("stoker.ray")


class Member(NamedTuple):
    """A worker that is ready."""

    number: int
    node: str
    address: str
    local: bool
    slots: int
    room: int
    handle: ActorHandle


class Dispatcher:
    """Asks workers for batches and holds what they give.

    Args:
        schedule: Decides; it is touched under `changed` alone.
        ended: Is told of each worker that is to be ended: its number, and why where it failed.
        window: Tells where the front stands, for the workers; see `stoker._native.Front.window`.
    """

    def __init__(
        self,
        schedule: Schedule,
        ended: Callable[[int, str | None], None],
        window: Callable[[], Window | None],
    ) -> None:
        self.schedule = schedule
        self.changed = threading.Condition()
        self.values: dict[int, Batch] = {}
        self.counts = Counts()
        self.broken: Exception | None = None
        """What ended the thread, if it was not `stop`."""
        self._ended = ended
        self._window = window
        self._events: queue.SimpleQueue[Callable[[float], None] | None] = queue.SimpleQueue()
        self._refs: dict[int, ObjectRef] = {}
        self._members: dict[int, Member] = {}
        self._pulses: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name="stoker-ray-dispatch", daemon=True)
        self._thread.start()

    def join(self, member: Member) -> None:
        """A worker is ready."""
        self.post(partial(self._join, member))

    def leave(self, number: int) -> None:
        """A worker is gone, with all that lay on its node."""
        self.post(lambda now: self._leave(number, now, silent=True))

    def retire(self, number: int) -> None:
        """A worker is no longer needed."""
        self.post(lambda _: self.schedule.retire(number))

    def post(self, event: Callable[[float], None]) -> None:
        """Has something done in the thread, under the lock; from any thread."""
        self._events.put(event)

    def poke(self) -> None:
        """The trainer has taken a batch, or wants one."""
        self.post(lambda _: None)

    def stop(self) -> None:
        """Ends the thread, and lets go of all that is not handed over."""
        self._events.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.changed:
            self.values.clear()
            self._refs.clear()
            self._members.clear()
            self.changed.notify_all()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:
            with self.changed:
                self.broken = error
                self.changed.notify_all()

    def _turn(self) -> bool:
        """Hears all that has happened, and does what is to be done; False at the end."""
        events = self._wait()
        if not ray.is_initialized():
            raise RuntimeError("Ray was shut down while a loader was open: close loaders first")
        with self.changed:
            now = time.monotonic()
            for event in events:
                if event is None:
                    return False
                event(now)
            actions = self.schedule.step(now)
            for action in actions:
                if isinstance(action, Drop):
                    self.values.pop(action.call, None)
                    self._refs.pop(action.call, None)
            self.changed.notify_all()
        for action in actions:
            self._do(action)
        self._pulse(now)
        return True

    def _wait(self) -> list[Callable[[float], None] | None]:
        try:
            events = [self._events.get(timeout=TICK)]
            while not self._events.empty():
                events.append(self._events.get_nowait())
        except queue.Empty:
            return []
        return events

    def _do(self, action: Action) -> None:
        match action:
            case Ask(call, worker, sequence, ahead) if worker in self._members:
                make = self._members[worker].handle.make
                answer, batch = make.remote(sequence, ahead, self._window())
                self._refs[call] = batch
                answer.future().add_done_callback(
                    lambda done: self.post(partial(self._answered, call, worker, done))
                )
            case Pull(call) if call in self._refs:
                self._refs[call].future().add_done_callback(
                    lambda done: self.post(partial(self._pulled, call, done))
                )
            case GiveUp(worker, silent):
                self._members.pop(worker, None)
                self.counts.left(worker)
                why = "it does not answer, or makes nothing" if silent else None
                self._ended(worker, why)

    def _join(self, member: Member, now: float) -> None:
        self._members[member.number] = member
        self.counts.joined(member.number, member.node, member.address, member.local)
        self.schedule.join(
            member.number,
            node=member.node,
            local=member.local,
            slots=member.slots,
            room=member.room,
            now=now,
        )

    def _leave(self, number: int, now: float, *, silent: bool = False) -> None:
        self._members.pop(number, None)
        self.counts.left(number)
        self.schedule.leave(number, now, silent=silent)

    def _answered(self, call: int, worker: int, done: Future[Answer], now: float) -> None:
        """A worker has finished a call, or has died over it."""
        error = done.exception()
        if error is None:
            answer = done.result()
            if answer.error is None:
                self.counts.made(worker, answer.nbytes)
                self.schedule.finished(call, answer.nbytes, now)
                return
            error = answer.error
        if isinstance(error, StoppedError) or worker_is_gone(error):
            self._gone(worker, brief(error), now)
        else:
            self.schedule.failed(call, error, elsewhere=isinstance(error, FetchError))

    def _pulled(self, call: int, done: Future[Batch], now: float) -> None:
        """A batch lies here, or is lost."""
        known = self.schedule.calls.get(call)
        if known is None:
            return
        error = done.exception()
        if error is None:
            self.values[call] = done.result()
            if not known.local:
                self.counts.pulled(known.worker, known.nbytes)
            self.schedule.arrived(call, now)
        elif isinstance(error, RayError):
            log.warning("batch %d was lost on its way: %s", known.sequence, brief(error))
            self.schedule.lost(call, error, now)
        else:
            self.schedule.failed(call, error, elsewhere=False)

    def _gone(self, worker: int, why: str, now: float) -> None:
        if worker in self._members:
            self._leave(worker, now)
            self._ended(worker, why)

    def _pulse(self, now: float) -> None:
        for number in [number for number in self._pulses if number not in self._members]:
            del self._pulses[number]
        for number, member in self._members.items():
            if now >= self._pulses.get(number, now):
                # One at a time: the next is due a second after this one was answered.
                self._pulses[number] = float("inf")
                member.handle.pulse.remote().future().add_done_callback(
                    lambda done, number=number: self.post(partial(self._heard, number, done))
                )

    def _heard(self, worker: int, done: Future[dict[str, Any]], now: float) -> None:
        error = done.exception()
        if error is not None:
            self._gone(worker, brief(error), now)
            return
        self.counts.said(worker, done.result())
        self.schedule.heard(worker, now)
        if worker in self._pulses:
            self._pulses[worker] = now + PULSE


def worker_is_gone(error: BaseException) -> bool:
    """Whether a call failed with its worker, rather than within it."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def brief(error: object) -> str:
    """The first line of what Ray says, which goes on for many."""
    return str(error).strip().split("\n", 1)[0]
