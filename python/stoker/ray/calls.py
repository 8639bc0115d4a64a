"""The words of the schedule: who makes batches, what was asked of them, and what is to be done.

A *call* is one request to make one batch. A batch may have several at once: when a worker is late,
another is asked too, and the first to give it wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Ask(NamedTuple):
    """To do: ask a worker for a batch."""

    call: int
    worker: int
    sequence: int
    ahead: tuple[int, ...]
    """What it will probably be asked for next, so that it may bring in the samples."""


class Pull(NamedTuple):
    """To do: bring a finished batch to this node."""

    call: int


class Drop(NamedTuple):
    """To do: let go of what a call gave; nobody needs it any more."""

    call: int


class GiveUp(NamedTuple):
    """To do: end a worker."""

    worker: int
    silent: bool
    """It has not answered for longer than the deadline; else it was only no longer needed."""


Action = Ask | Pull | Drop | GiveUp


@dataclass(eq=False)
class Call:
    """One request to make one batch."""

    number: int
    sequence: int
    worker: int
    node: str
    local: bool
    asked: float
    finished: float | None = None
    """When it existed somewhere."""
    nbytes: int = 0
    pulling: float | None = None
    """When its pull began."""
    arrived: float | None = None
    """When it lay on this node."""
    doomed: bool = False
    """Its node is silent: it may still come, but nobody should wait for it."""

    @property
    def pullable(self) -> bool:
        """Whether it is finished, and nothing brings it here yet."""
        begun = self.pulling is not None or self.arrived is not None or self.doomed
        return self.finished is not None and not begun


@dataclass(eq=False)
class Worker:
    """What the schedule knows of a worker."""

    number: int
    node: str
    local: bool
    slots: int
    """Calls that keep it busy."""
    room: int
    """Bytes of batches that may lie in its node's object store for this rank."""
    heard: float
    progress: float
    """When it last finished something, or began to have work."""
    running: dict[int, Call] = field(default_factory=dict)
    held: int = 0
    """Bytes of its batches that lie in its node's object store."""
    waiting: int = 0
    """Its batches that are finished and not here yet."""
    pace: float | None = None
    """Seconds from one of its batches to the next, here, while it has work."""
    delivered: float = 0.0
    """When a batch of its was last here."""
    alone: int | None = None
    """The call that nothing is to run beside."""
    late: bool = False
    retiring: bool = False

    def begin(self, call: Call, now: float) -> None:
        """It is asked."""
        if not self.running:
            self.progress = now
            if not self.waiting:
                self.delivered = now
        self.running[call.number] = call

    def forget_running(self, call: int) -> None:
        """It no longer makes that."""
        self.running.pop(call, None)
        if self.alone == call:
            self.alone = None

    def keep_pace(self, now: float) -> None:
        """A batch of its is here."""
        seconds = now - self.delivered
        self.pace = seconds if self.pace is None else 0.8 * self.pace + 0.2 * seconds
        self.delivered = now


@dataclass(eq=False)
class OpenBatch:
    """A batch that is not handed over yet."""

    sequence: int
    calls: list[Call] = field(default_factory=list)
    assigned: int | None = None
    """The worker that will probably be asked for it."""
    deaths: int = 0
    """Workers that died while they were making it."""
    losses: int = 0
    """How often it was finished, and then lost."""
    refused: set[int] = field(default_factory=set)
    """Workers that could not read its bytes."""
    moved: bool = False
    """It was asked for and has to be asked for again: it has waited long enough."""
    error: Exception | None = None

    @property
    def urgent(self) -> bool:
        """Whether it should be here by now."""
        return self.moved or bool(self.calls)

    @property
    def ready(self) -> Call | None:
        """The call whose batch lies here."""
        return next((call for call in self.calls if call.arrived is not None), None)
