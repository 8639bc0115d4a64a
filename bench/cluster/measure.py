"""What a steady run of one or more trainers gives, over a window of time.

The rates are taken from what arrives: a batch counts when a trainer has it, with the bytes that had
to be fetched for it and those of its tensors. The cards' own counters stand beside them.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.cluster.driver import Arrival, Trainer
    from bench.cluster.hosts import Network, Traffic

CORES_BUSY = 0.9
"""Share of the machine's cores from which on they, and not the cards, may be the limit."""


@dataclass(frozen=True)
class Window:
    """From when to when, by the monotonic clock, in seconds; how long a run settles before it."""

    settle: float
    seconds: float


@dataclass(frozen=True)
class Steady:
    """A run in its window."""

    fetched: float
    """Bytes per second that had to be fetched for what came."""
    delivered: float
    """Bytes per second of finished batches."""
    batches: int
    cores_busy: float
    """Share of the machine's cores that was busy, whoever used them."""
    cards: dict[str, dict[str, float]]
    """For each host the bytes per second its card `received` and `sent`, headers included."""
    report: str
    """What the first trainer's loader says of itself."""

    @property
    def cores_limit(self) -> bool:
        """Whether the cores may have been the limit."""
        return self.cores_busy >= CORES_BUSY


def steady(
    network: Network,
    jobs: Mapping[Trainer, Mapping[str, Any]],
    row_bytes: Sequence[int],
    window: Window,
) -> Steady:
    """Runs loaders until they run steadily, then over a window.

    Args:
        network: Whose cards to read.
        jobs: The loader's arguments for each trainer.
        row_bytes: What is fetched for each sample.
        window: How long to settle and to measure.
    """
    begun = {
        trainer: trainer.begin(loader=loader, batches=10**9, step=0, digest=False)
        for trainer, loader in jobs.items()
    }
    for trainer, job in begun.items():
        trainer.wait(lambda job=job: len(job.arrivals) >= 2)
    time.sleep(window.settle)
    began, cards, cores = time.monotonic(), network.traffic(), core_seconds()
    for trainer in begun:
        # A trainer that fails in the window ends the run.
        left = began + window.seconds - time.monotonic()
        trainer.pause(max(0.0, left))
    ended, cards_after, cores_after = time.monotonic(), network.traffic(), core_seconds()
    for trainer in begun:
        trainer.stop()
    reports = [trainer.finish().report for trainer in begun]
    arrivals = [arrival for job in begun.values() for arrival in job.arrivals]
    fetched, delivered, batches = rates(arrivals, row_bytes, began, ended)
    busy, available = (after - before for after, before in zip(cores_after, cores, strict=True))
    return Steady(
        fetched,
        delivered,
        batches,
        busy / available,
        between(cards, cards_after, ended - began),
        reports[0],
    )


def rates(
    arrivals: Sequence[Arrival], row_bytes: Sequence[int], began: float, ended: float
) -> tuple[float, float, int]:
    """Bytes fetched and bytes delivered per second of a window, and the batches that came in it."""
    within = [arrival for arrival in arrivals if began < arrival.at <= ended]
    fetched = sum(row_bytes[row] for arrival in within for row in arrival.rows)
    delivered = sum(arrival.nbytes for arrival in within)
    return fetched / (ended - began), delivered / (ended - began), len(within)


def between(
    before: Mapping[str, Traffic], after: Mapping[str, Traffic], seconds: float
) -> dict[str, dict[str, float]]:
    """Bytes per second over each card between two readings."""
    return {
        name: {
            "received": (after[name].received - before[name].received) / seconds,
            "sent": (after[name].sent - before[name].sent) / seconds,
        }
        for name in before
    }


def core_seconds() -> tuple[float, float]:
    """Seconds that cores were busy, and all seconds that they had, since the machine started."""
    line = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, idle, waiting, *others = map(int, line.split()[1:9])
    busy = user + nice + system + sum(others)
    ticks = os.sysconf("SC_CLK_TCK")
    return busy / ticks, (busy + idle + waiting) / ticks
