"""Why there is no worker: who may be started again when, and what to tell whoever waits.

A worker that is gone is replaced at once; where they keep failing on a node, each time after twice
as long. The trainer hears of it only when there is no worker at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.errors import ClusterError, StokerError

if TYPE_CHECKING:
    from stoker.ray.placement import Node, Seat, Wish

PATIENCE = 60.0
"""Seconds without any worker, after which the trainer is told."""

FAILURES = 3
"""Workers that fail one after the other, after which the trainer is told."""

FIRST, LONGEST = 0.5, 30.0
"""Seconds between two tries on a node: at first, and at most."""

SETTLED = 10.0
"""Seconds at work after which a worker is not said to have failed at the start."""


@dataclass
class Backoff:
    """What went wrong on a node."""

    failures: int = 0
    until: float = 0.0


class Trouble:
    """What keeps a rank from having workers."""

    def __init__(self, wish: Wish, now: float) -> None:
        self._wish = wish
        self._nodes: dict[str, Backoff] = {}
        self._failures = 0
        self._last: tuple[str, BaseException | None] = ("", None)
        self._without: float | None = now
        self._seen: tuple[list[Node], list[Seat]] = ([], [])

    def saw(self, nodes: list[Node], wanted: list[Seat], ready: bool, now: float) -> None:
        """The cluster was looked at."""
        self._seen = (nodes, wanted)
        if ready:
            self._without = None
            self._failures = 0
        elif self._without is None:
            self._without = now

    def may_start(self, node: str, now: float) -> bool:
        """Whether it is time to try that node."""
        return now >= self._nodes.get(node, Backoff()).until

    def failed(
        self, node: str, why: str, error: BaseException | None, lived: float, now: float
    ) -> None:
        """A worker is gone that was wanted; it had been at work for so many seconds."""
        backoff = self._nodes.setdefault(node, Backoff())
        if lived >= SETTLED:
            backoff.failures = 0
            return
        self._last = (why, error)
        self._failures += 1
        backoff.until = now + min(LONGEST, FIRST * 2**backoff.failures)
        backoff.failures += 1

    def error(self, now: float) -> StokerError | None:
        """What to tell a trainer that waits, if it is time to."""
        if self._without is None:
            return None
        if self._failures >= FAILURES:
            why, error = self._last
            if isinstance(error, StokerError):
                return error
            reason = f"no data worker could be started in {self._failures} tries, the last: {why}"
            hint = "see the workers' logs (`ray logs`); stoker must be installed on their nodes"
            return _error(reason, hint)
        if now - self._without > PATIENCE:
            return self._none()
        return None

    def _none(self) -> ClusterError:
        nodes, wanted = self._seen
        has = "; ".join(
            f"{node.address}: {node.free} of {node.cpus} CPUs free"
            + (f", labels {node.labels}" if self._wish.node_labels else "")
            for node in nodes
        )
        if wanted:
            address = {node.id: node.address for node in nodes}
            asked = ", ".join(f"{s.cpus} CPUs on {address.get(s.node, s.node)}" for s in wanted)
            reason = f"no data worker could be started for {PATIENCE:.0f} s; asked for: {asked}"
            hint = "let the trainers reserve fewer CPUs, set cpus_per_worker, or add nodes"
        else:
            reason = f"no node may be used for data workers ({_words(self._wish)})"
            hint = "let the trainers leave CPUs free, or change placement or node_labels"
        return _error(f"{reason}; the cluster has {has}", hint)


def _words(wish: Wish) -> str:
    labels = f", node_labels={wish.node_labels}" if wish.node_labels else ""
    return f"placement={wish.placement!r}{labels}"


def _error(reason: str, hint: str) -> ClusterError:
    message = f"{reason}; {hint}"
    return ClusterError(message, kind="no-workers", sequence=None, reason=reason, hint=hint)
