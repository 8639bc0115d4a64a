"""Why a rank's trainer waits: what the engines of its workers know, and what Ray's side does.

The rule is the engine's own (`stoker._native._advice`). Workers tell numbers that only grow; what
they were a minute ago is remembered, so that an advice is about the last minute. Of the time that
the trainer was blocked, Ray's side knows how long its batch was finished and on its way; the rest
is divided by what the batches were at while they were made. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque

Evidence = dict[str, float]
"""As `stoker._native.Maker.evidence` has it."""

LIMITS = (
    "data_workers",
    "workers",
    "usable_cores",
    "most_requests",
    "requests_now",
    "compressed_limit_bytes",
    "batch_limit_bytes",
    "u8_workers",
)
"""What is so now, and is no sum over time."""

MAKING = ("bytes_blocked_seconds", "memory_blocked_seconds", "pixels_blocked_seconds")
"""What a batch in the making is at."""

WINDOW = 60.0
"""Seconds that an advice is about, or longer, as far as it needs that."""

BATCHES = 8.0
"""Fewer batches tell nothing."""

MARKS = 3600
"""Moments that are remembered at most: an hour."""


def added(parts: list[Evidence]) -> Evidence:
    """Several engines as one."""
    names = {name: None for part in parts for name in part}
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def ended(evidence: Evidence) -> Evidence:
    """What remains of a worker that is gone: what it did, and nothing that it may use."""
    return {name: value for name, value in evidence.items() if name not in LIMITS}


class Lately:
    """What was known when, back to the beginning of the window."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Evidence]] = deque()

    def note(self, known: Evidence, now: float) -> None:
        """Remembers it; once a second is enough."""
        self._marks.append((now, known))
        while len(self._marks) > 1 and (self._is_over(known, now) or len(self._marks) > MARKS):
            self._marks.popleft()

    def _is_over(self, known: Evidence, now: float) -> bool:
        """Whether what came after the second mark is enough, so that nobody needs the first."""
        then, before = self._marks[1]
        new = known.get("batches", 0.0) - before.get("batches", 0.0)
        return then <= now - WINDOW and new >= BATCHES

    def since(self, known: Evidence, now: float) -> Evidence | None:
        """What has come since the beginning of the window; None where nothing was noted."""
        if not self._marks:
            return None
        then, before = self._marks[0]
        new = {
            name: value if name in LIMITS else max(0.0, value - before.get(name, 0.0))
            for name, value in known.items()
        }
        making = max(0.0, new["blocked_seconds"] - new["network_blocked_seconds"])
        at = {name: new.get(name, 0.0) for name in MAKING}
        told = sum(at.values())
        shares = {name: making * spent / told if told else 0.0 for name, spent in at.items()}
        return new | shares | {"wall_seconds": now - then}
