"""The process of one rung, or of the rungs that share a Ray."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from stoker import StokerError
from stoker.demo.store import DemoError

from bench.ladder import measure
from bench.ladder.local_ray import local_ray
from bench.processes import adopt_orphans, die_with_parent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from multiprocessing.connection import Connection

    from bench.ladder.job import Job
    from bench.ladder.ways import Way


def host(
    messages: Connection, ways: list[Way], job: Job, step: float | None, at_most_seconds: float
) -> None:
    """Climbs some rungs and says how it goes.

    Args:
        messages: Gets tuples of a kind, the number of one rung or of all, and what it is: `begins`
            and `ends`, or the field of an `Outcome` that it belongs to.
        ways: The rungs.
        job: What each has to do.
        step: The trainer's step in seconds; None for rung 0, which sets it.
        at_most_seconds: How long each may be measured.
    """
    die_with_parent()
    adopt_orphans()
    multiprocessing.set_start_method("fork", force=True)  # so that workers share the imports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends us
    numbers = ", ".join(way.number for way in ways)
    counters: dict[str, float] = {}
    try:
        with place(ways[0], job, counters):
            for way in ways:
                messages.send(("begins", way.number, way.name))
                try:
                    found = measure.climb(way, job, step, at_most_seconds)
                except Exception as error:
                    messages.send(("failed", way.number, words(error)))
                else:
                    messages.send(("found", way.number, found))
    except Exception as error:
        messages.send(("failed", numbers, words(error)))
    if counters:
        messages.send(("ray", numbers, counters))
    messages.send(("ends", numbers, None))


def place(way: Way, job: Job, counters: dict[str, float]) -> AbstractContextManager[None]:
    """What has to run around a rung."""
    return local_ray(job.cores, job.scratch, counters) if way.on_ray else nullcontext()


def words(error: Any) -> str:
    """An error in a line; one that nobody expected tells all it knows on stderr."""
    if isinstance(error, DemoError | StokerError | ImportError | OSError):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"
