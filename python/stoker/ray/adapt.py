"""How many other nodes a rank uses where the placement is `auto`: as many as measurably help.

Work is taken elsewhere where the trainer waits because cores are short, or because a node's card
brings in more compressed bytes than the finished batches have (shipped / fetched under one). It is
taken back where the trainer waits for the network itself. Pure: time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WAIT = 0.05
"""Share of its time that a trainer may wait before anything is changed."""

BUSY = 0.7
"""Share of the workers' time from which on cores are what is short."""

WORTH = 0.8
"""Shipped / fetched under which another card brings in more than it costs ours."""

BRAKE = 60.0
"""Seconds without growth after something was taken back, lest it swing."""


class Measured(NamedTuple):
    """What was seen since the last time."""

    wait: float
    """Share of the time that the trainer was blocked."""
    network: float
    """Share of that in which its batch was finished, elsewhere."""
    busy: float | None
    """Share of the workers' time that they were busy."""
    ratio: float | None
    """Bytes of batches to bytes fetched."""
    near: int
    """Workers at work on the rank's own node."""


@dataclass
class Auto:
    """The number of other nodes."""

    remote: int = 0
    brake: float = float("-inf")

    def adapt(self, measured: Measured, possible: int, now: float) -> int:
        """The number from now on; it doubles, for a run begins with nobody and may need many."""
        self.remote = min(self.remote, possible)
        if measured.wait <= WAIT:
            return self.remote
        ratio = measured.ratio
        if measured.network >= 0.5:
            least = 0 if measured.near else 1
            if self.remote > least and (ratio is None or ratio >= 1):
                self.remote -= 1
                self.brake = now + BRAKE
        elif now >= self.brake:
            short = measured.near == 0 or (measured.busy is not None and measured.busy >= BUSY)
            if short or (ratio is not None and ratio < WORTH):
                self.remote = min(possible, max(1, 2 * self.remote))
        return self.remote
