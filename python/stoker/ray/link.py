"""What the network brings to this node: how fast it is, and how much may be on its way at once.

Ray asks for an object anew that has not come in ten seconds, and the sender then sends all of it
again. So no more is pulled at a time than the network, as it was measured, finishes in a fifth of
that. Pure: time is an argument.
"""

from __future__ import annotations

AHEAD = 2.0
"""Seconds of the measured link that may be on their way; well under Ray's ten."""

MEMORY = 4.0
"""Seconds of pulling that the measured rate is about."""


class Link:
    """The pulls of one rank."""

    def __init__(self) -> None:
        self.in_flight = 0
        """Bytes on their way."""
        self.bytes = 0
        """Bytes that have come, ever."""
        self._recent_bytes = 0.0
        self._recent_seconds = 0.0
        self._since = 0.0
        self._heard: dict[str, float] = {}

    @property
    def rate(self) -> float | None:
        """Bytes per second while something was on its way; None before the first has come."""
        if self._recent_seconds <= 0:
            return None
        return self._recent_bytes / self._recent_seconds

    def allows(self, nbytes: int) -> bool:
        """Whether that much more may be pulled now; something always may."""
        if self.in_flight == 0:
            return True
        rate = self.rate
        return rate is not None and self.in_flight + nbytes <= rate * AHEAD

    def start(self, nbytes: int, now: float) -> None:
        """A pull begins."""
        if self.in_flight == 0:
            self._since = now
        self.in_flight += nbytes

    def done(self, nbytes: int, node: str, now: float) -> None:
        """A pull has come to its end."""
        self._heard[node] = now
        self.bytes += nbytes
        self._recent_bytes += nbytes
        # A clock may stand still between two events; a rate without end would allow everything.
        self._recent_seconds += max(now - self._since, 1e-6)
        if self._recent_seconds > MEMORY:
            self._recent_bytes /= 2
            self._recent_seconds /= 2
        self._stop(nbytes, now)

    def lost(self, nbytes: int, now: float) -> None:
        """A pull ended without its bytes."""
        self._stop(nbytes, now)

    def _stop(self, nbytes: int, now: float) -> None:
        self.in_flight -= nbytes
        self._since = now

    def overdue(self, nbytes: int, node: str, since: float, deadline: float, now: float) -> bool:
        """Whether nothing came from a node for longer than a pull from it can take.

        While other bytes come from there the link is slow rather than cut, and to make and send
        the batch once more would make it slower.
        """
        rate = self.rate
        expected = deadline if rate is None else max(nbytes, self.in_flight) / rate
        return now - max(since, self._heard.get(node, since)) > deadline + expected

    def shift(self, seconds: float) -> None:
        """Forgives time in which this process stood still."""
        self._since += seconds
        self._heard = {node: heard + seconds for node, heard in self._heard.items()}
