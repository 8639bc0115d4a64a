"""What the workers of a rank have done, those that are gone included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stoker.ray.evidence import Evidence, Lately, added, ended

Numbers = dict[str, Any]
"""A `stoker.Report` as a dict."""

SUMS = ("workers", "worker_seconds", "worker_delay_seconds", "process_seconds")
"""What of an engine's report is simply added."""

ROOMS = ("plan", "dataset", "fetch", "image", "vision", "text", "pack", "engine")
"""In the order that data flows."""


@dataclass
class NodeCounts:
    """What the workers on one node have done for this rank."""

    node: str
    address: str
    local: bool
    batches: int = 0
    made_bytes: int = 0
    pulls: int = 0
    pulled_bytes: int = 0
    """Those that came over the network to this rank's node."""
    past: Numbers | None = None
    """What the engines of workers that are gone have done."""


@dataclass
class Counts:
    """By node, and what each worker has last said of itself."""

    nodes: dict[str, NodeCounts] = field(default_factory=dict)
    batches: int = 0
    """Handed over."""
    blocked_seconds: float = 0.0
    """Time in which the trainer waited."""
    network_seconds: float = 0.0
    """Time of that in which its batch was finished, elsewhere."""
    waiting_since: float | None = None
    """Since when the trainer waits; None if it does not."""
    _node_of: dict[int, NodeCounts] = field(default_factory=dict)
    _reports: dict[int, Numbers] = field(default_factory=dict)
    _ended: Evidence = field(default_factory=dict)
    """Of workers that are gone."""
    _lately: Lately = field(default_factory=Lately)

    def joined(self, worker: int, node: str, address: str, local: bool) -> None:
        """A worker is ready."""
        self._node_of[worker] = self.nodes.setdefault(node, NodeCounts(node, address, local))

    def left(self, worker: int) -> None:
        """A worker is gone; what it has done stays."""
        node = self._node_of.get(worker)
        numbers = self._reports.pop(worker, None)
        if node is not None and numbers is not None:
            self._ended = added([self._ended, ended(numbers.get("evidence", {}))])
            past = _without_what_it_had(numbers)
            node.past = merged([node.past, past]) if node.past else past

    def made(self, worker: int, nbytes: int) -> None:
        """A batch is finished."""
        node = self._node_of[worker]
        node.batches += 1
        node.made_bytes += nbytes

    def pulled(self, worker: int, nbytes: int) -> None:
        """A batch has come over the network."""
        node = self._node_of[worker]
        node.pulls += 1
        node.pulled_bytes += nbytes

    def said(self, worker: int, numbers: Numbers | None) -> None:
        """A worker has answered a pulse with the numbers of its engine."""
        if numbers is not None:
            self._reports[worker] = numbers

    def blocked(self, now: float) -> float:
        """The time in which the trainer waited, up to now."""
        waiting = 0.0 if self.waiting_since is None else now - self.waiting_since
        return self.blocked_seconds + waiting

    def evidence(self, now: float) -> Evidence | None:
        """What the last minute tells of why the trainer waits; None where nothing was noted."""
        return self._lately.since(self._known(now), now)

    def note(self, now: float) -> None:
        """Remembers what is known now, once the trainer has its first batch."""
        if self.batches > 0:
            self._lately.note(self._known(now), now)

    def _known(self, now: float) -> Evidence:
        of_workers = [numbers.get("evidence", {}) for numbers in self._reports.values()]
        return added([self._ended, *of_workers]) | {
            "batches": float(self.batches),
            "blocked_seconds": self.blocked(now) if self.batches > 0 else 0.0,
            "network_blocked_seconds": self.network_seconds,
        }

    @property
    def made_bytes(self) -> int:
        """Bytes of all batches that were made."""
        return sum(node.made_bytes for node in self.nodes.values())

    @property
    def pulled_bytes(self) -> int:
        """Bytes that came over the network to this rank's node."""
        return sum(node.pulled_bytes for node in self.nodes.values())

    def reports(self, node: str | None = None) -> list[Numbers]:
        """What all workers have done, or those of one node; the dead ones of a node as one."""
        mine = [n for w, n in self._reports.items() if node in (None, self._node_of[w].node)]
        past = [n.past for n in self.nodes.values() if n.past and node in (None, n.node)]
        return past + mine

    @property
    def ratio(self) -> float | None:
        """Shipped / fetched: bytes of batches to bytes that were read for them."""
        read = fetched(self.reports())
        return self.made_bytes / read if read else None


HELD = {
    "fetch": ("in_flight", "queued", "limit"),
    "memory": ("arena_bytes", "compressed_bytes", "leased_bytes"),
}
"""What an engine has while it lives."""


def _without_what_it_had(numbers: Numbers) -> Numbers:
    """What a worker that is gone has done, and no more."""
    parts = {
        part: numbers[part] | {name: 0 for name in names if name in numbers[part]}
        for part, names in HELD.items()
    }
    return numbers | parts | {"workers": 0}


def fetched(reports: list[Numbers]) -> int:
    """Bytes that were read from the store."""
    return sum(room["bytes"] for n in reports for room in n["rooms"] if room["room"] == "fetch")


def busy(reports: list[Numbers]) -> float:
    """Seconds that worker threads were at work, added up."""
    rooms = [room for numbers in reports for room in numbers["rooms"]]
    return sum(room["busy_seconds"] for room in rooms if room["room"] != "fetch")


def merged(reports: list[Numbers]) -> Numbers:
    """The numbers of several engines as those of one.

    Peaks are added too: it was at most that. Of percentiles the largest is told.
    """
    rooms = {}
    for room in (room for numbers in reports for room in numbers["rooms"]):
        rooms[room["room"]] = _added(rooms.get(room["room"]), room)
    first = reports[0]
    return first | {
        "rooms": sorted(rooms.values(), key=lambda room: ROOMS.index(room["room"])),
        "fetch": _sum([numbers["fetch"] for numbers in reports]),
        "memory": _sum([numbers["memory"] for numbers in reports]),
        **{name: sum(numbers[name] for numbers in reports) for name in SUMS},
        "first_byte_histogram": _steps([numbers["first_byte_histogram"] for numbers in reports]),
    }


def _steps(histograms: list[Numbers]) -> Numbers:
    """Histograms with the same steps, added step by step."""
    counts = zip(*(histogram["counts"] for histogram in histograms), strict=True)
    return histograms[0] | {
        "counts": [sum(step) for step in counts],
        "sum_seconds": sum(histogram["sum_seconds"] for histogram in histograms),
    }


def _sum(parts: list[Numbers]) -> Numbers:
    total = None
    for part in parts:
        total = _added(total, part)
    return total


def _added(one: Numbers | None, other: Numbers) -> Numbers:
    """Two flat dicts of numbers, added; texts are the same in both."""
    if one is None:
        return dict(other)
    return {key: _both(key, one[key], value) for key, value in other.items()}


def _both(key: str, one: Any, other: Any) -> Any:
    if isinstance(other, str):
        return other
    if key.startswith("first_byte_"):
        return max((value for value in (one, other) if value is not None), default=None)
    return one + other
