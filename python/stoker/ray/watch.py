"""Looks once a second at what was done: for `ray.util.metrics`, and for the `auto` placement."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ray.util import metrics

from stoker.ray import counts
from stoker.ray.adapt import Auto, Measured

if TYPE_CHECKING:
    from stoker.ray.dispatch import Dispatcher

EVERY = 5.0
"""Seconds between two decisions of the `auto` placement: many batches, so that luck evens out."""

SETTLE = 20.0
"""Seconds that the first batch may take before its absence says anything."""


class Watch:
    """What a rank's workers did since the last look.

    Args:
        dispatcher: Has the counts.
        rank: The tag of the metrics.
    """

    def __init__(self, dispatcher: Dispatcher, rank: int) -> None:
        self._dispatcher = dispatcher
        self._auto = Auto()
        self._meters = Meters(rank)
        self._begun = time.monotonic()
        self._then = (self._begun, 0.0, 0.0, 0.0)

    def remote(self, possible: int) -> int:
        """How many other nodes to use, of as many as there are."""
        self._meters.tell(self._dispatcher)
        now = time.monotonic()
        known = self._dispatcher.counts
        with self._dispatcher.changed:
            known.note(now)
        if known.batches == 0 and now - self._begun < SETTLE:
            return min(self._auto.remote, possible)
        if now - self._then[0] >= EVERY:
            self._auto.adapt(self._measured(now), possible, now)
        return min(self._auto.remote, possible)

    def _measured(self, now: float) -> Measured:
        with self._dispatcher.changed:
            known = self._dispatcher.counts
            reports = known.reports()
            sums = (known.blocked(now), known.network_seconds, counts.busy(reports))
            ratio = known.ratio
            near = sum(worker.local for worker in self._dispatcher.schedule.workers.values())
        then, blocked, network, busy = self._then
        self._then = (now, *sums)
        seconds, threads = now - then, sum(numbers["workers"] for numbers in reports)
        blocked = sums[0] - blocked
        return Measured(
            wait=blocked / seconds,
            network=(sums[1] - network) / blocked if blocked > 0 else 0.0,
            busy=(sums[2] - busy) / (threads * seconds) if threads else None,
            ratio=ratio,
            near=near,
        )


class Meters:
    """The counters of one rank in Ray's own metrics, which Prometheus reads from each node.

    They are told once a second: each costs microseconds, and Ray exports them every ten.
    """

    COUNTERS = (
        ("stoker_batches_total", "Batches that the trainer was given."),
        ("stoker_blocked_seconds_total", "Seconds that the trainer waited for batches."),
        ("stoker_network_seconds_total", "Those in which its batch was finished, elsewhere."),
        ("stoker_made_bytes_total", "Bytes of the batches that were made."),
        ("stoker_pulled_bytes_total", "Bytes of batches that came over the network."),
        ("stoker_fetched_bytes_total", "Bytes that the workers read from the store."),
        ("stoker_busy_seconds_total", "Seconds that threads of workers were at work."),
        ("stoker_moved_total", "Batches that were asked of one more worker."),
    )

    def __init__(self, rank: int) -> None:
        tags = {"tag_keys": ("rank",)}
        self._tags = {"rank": str(rank)}
        self._counters = [metrics.Counter(name, text, **tags) for name, text in self.COUNTERS]
        self._workers = metrics.Gauge("stoker_workers", "Data workers that are ready.", **tags)
        self._told = [0.0] * len(self._counters)

    def tell(self, dispatcher: Dispatcher) -> None:
        """Adds what has come since the last time."""
        with dispatcher.changed:
            known = dispatcher.counts
            reports = known.reports()
            now = [
                known.batches,
                known.blocked_seconds,
                known.network_seconds,
                known.made_bytes,
                known.pulled_bytes,
                counts.fetched(reports),
                counts.busy(reports),
                dispatcher.schedule.moved,
            ]
            workers = len(dispatcher.schedule.workers)
        for counter, value, told in zip(self._counters, now, self._told, strict=True):
            if value > told:
                counter.inc(value - told, tags=self._tags)
        self._told = [max(pair) for pair in zip(now, self._told, strict=True)]
        self._workers.set(workers, tags=self._tags)
