"""One run of `bench.neighbour`, in the environment of its rival: a loop beside a loader."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.processes import TICKS, CpuMeter, die_with_parent
from bench.speed.job import Job
from bench.speed.nursery import settle
from bench.speed.rivals import Rival

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

LAUNCHES = 50
"""Operations between two looks at the clock: about 50 microseconds."""
QUIET = 0.2
"""Seconds in which a loader that is full again does nothing, but for one tick of Linux's clock."""
EMPTYING = 1.0
"""Seconds in which a loader is taken from until nothing is ready, and then once more to count."""
FILLING = 5.0
"""Seconds that it has for that: SPDL with one worker takes 0.8 to 1.1, stoker 0.1."""
WARM = 0.3
"""Seconds that the loop runs after a pause before it counts; turns beside a loader follow no pause.

In the mean of 25 pauses of 2 seconds it had 5 % less than its pace in the first tenth of a second,
1 % in the next two, and then no less than it varies by, 3 %.
"""
THREAD = Path("/proc/thread-self/schedstat")
"""What Linux counts of a thread: nanoseconds that it ran, and that it could have and others did."""


def main() -> None:
    """Hears on stdin what to run, says on stdout what it found."""
    die_with_parent()
    said = json.loads(sys.stdin.read())
    rival, job = Rival(**said["rival"]), Job(**said["job"])
    settle(job)
    batches = import_module(rival.module).open(job)
    print(json.dumps(turns(batches, said["pairs"], said["seconds"])))
    batches.close()


def turns(batches: Iterator[Any], pairs: int, seconds: float) -> dict[str, list[float]]:
    """What the loop launches a second, alone and beside a loader in turns, and images a second.

    There is one more turn alone than beside it. Of each turn beside it, `waited` is the share in
    which the loop would have gone on, and others had its core; `starved` that in which it had to
    wait for a batch; `blocked`, and for the turns alone `blocked_alone`, that in which it did not
    go on for anything else: for the interpreter's lock, and for what the host takes. It launches
    nothing while it is starved, which is the loader's pace and not its manners: that time is left
    out.
    """
    next(batches)  # all that is needed is imported, and started
    taking = Taking(batches, interval(batches))
    fill()
    kinds = "alone", "blocked_alone", "beside", "waited", "blocked", "starved", "images_per_second"
    found: dict[str, list[float]] = {kind: [] for kind in kinds}

    def turn_alone() -> None:
        launch(WARM)
        turn = launch(seconds)
        found["alone"].append(turn.pace())
        found["blocked_alone"].append(turn.blocked / turn.took)

    turn_alone()
    for _ in range(pairs):
        turn = launch(seconds, taking)
        found["images_per_second"].append(turn.images / turn.took)
        found["beside"].append(turn.pace())
        found["waited"].append(turn.waited / turn.took)
        found["blocked"].append(turn.blocked / turn.took)
        found["starved"].append(turn.starved / turn.took)
        fill()
        turn_alone()
    return found


def interval(batches: Iterator[Any]) -> float:
    """Seconds from one batch to the next of a loader that has the machine for itself."""
    until, count = time.monotonic() + EMPTYING, 0
    while time.monotonic() < until:
        next(batches)
    began = time.monotonic()
    while (took := time.monotonic() - began) < EMPTYING or not count:
        next(batches)
        count += 1
    return took / count


def fill() -> None:
    """Waits until the loader has made what it makes ahead, by the processor time that it takes."""
    until = time.monotonic() + FILLING
    while time.monotonic() < until:
        meter = CpuMeter(os.getpid())
        time.sleep(QUIET)
        if meter.seconds() <= 1 / TICKS:
            return


class Turn(NamedTuple):
    """What the loop came to in a while; times in seconds."""

    launches: int
    took: float
    waited: float
    """Of it, others had the core."""
    blocked: float
    """Of it, the loop neither ran nor waited for the core or for a batch."""
    starved: float = 0.0
    """Of it, the loop stood still until there was a batch."""
    images: int = 0

    def pace(self) -> float:
        """Launches in a second in which it was not starved."""
        return self.launches / (self.took - self.starved)


class Taking(NamedTuple):
    """When the loop takes batches: as often as the loader makes them where nothing is beside it.

    So the loader works without a pause, and has a batch ready most of the time.
    """

    batches: Iterator[Any]
    interval: float


def launch(seconds: float, taking: Taking | None = None) -> Turn:
    """The trainer's loop for a while, which takes batches if it is to."""
    import torch

    torch.set_num_threads(1)
    state, count, images, starved = torch.zeros(64), 0, 0, 0.0
    (ran, waited), began = ran_and_waited(), time.perf_counter()
    due = began if taking else inf
    while (now := time.perf_counter()) - began < seconds:
        if now >= due:
            with Standstill() as standstill:
                images += len(next(taking.batches)["image_grid_thw"])
            starved += standstill.seconds
            due = time.perf_counter() + taking.interval
        for _ in range(LAUNCHES):
            state.add_(1.0)
        count += LAUNCHES
    took = time.perf_counter() - began
    ran, waited = (now - then for now, then in zip(ran_and_waited(), (ran, waited), strict=True))
    blocked = max(took - ran - waited - starved, 0.0)
    return Turn(count, took, waited, blocked, starved, images)


class Standstill:
    """Counts how long this thread neither runs nor waits for its core, within the block."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self.began, self.active = time.perf_counter(), sum(ran_and_waited())
        return self

    def __exit__(self, *_: object) -> None:
        active = sum(ran_and_waited()) - self.active
        self.seconds = max(time.perf_counter() - self.began - active, 0.0)


def ran_and_waited() -> tuple[float, float]:
    """Seconds that this thread ran, and that it would have and others had its core."""
    ran, waited, _ = THREAD.read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


if __name__ == "__main__":
    main()
