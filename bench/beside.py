"""One run of `bench.neighbour`, in the environment of its rival: a loop beside a loader."""

from __future__ import annotations

import json
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.processes import die_with_parent
from bench.speed.job import Job
from bench.speed.nursery import settle
from bench.speed.rivals import Rival

if TYPE_CHECKING:
    from collections.abc import Iterator

LAUNCHES = 50
"""Operations between two looks at the clock: about 50 microseconds."""
FILLING = 2.0
"""Seconds until a loader is full again, and has nothing to do: twice what the slowest one needs."""


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
    which the loop would have gone on, and others had its core.
    """
    next(batches)  # all that is needed is imported, and started
    go, images, lock = threading.Event(), [0], threading.Lock()

    def drain() -> None:
        while go.wait():
            with lock:
                if go.is_set():
                    images[0] += len(next(batches)["image_grid_thw"])

    threading.Thread(target=drain, daemon=True).start()
    time.sleep(FILLING)
    found = {"alone": [launches_per_second(seconds)]}
    found |= {"beside": [], "waited": [], "images_per_second": []}
    for _ in range(pairs):
        before, waited, began = images[0], waited_seconds(), time.perf_counter()
        go.set()
        found["beside"].append(launches_per_second(seconds))
        took = time.perf_counter() - began
        found["waited"].append((waited_seconds() - waited) / took)
        pace = (images[0] - before) / took
        go.clear()
        with lock:
            pass  # what was begun is over
        time.sleep(FILLING)
        found["alone"].append(launches_per_second(seconds))
        found["images_per_second"].append(pace)
    return found


def waited_seconds() -> float:
    """How long this thread could have gone on, and others had its core; as Linux counts it."""
    _, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return int(waited) / 1e9


def launches_per_second(seconds: float) -> float:
    """The trainer's loop for a while."""
    import torch

    torch.set_num_threads(1)
    state, count, began = torch.zeros(64), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(LAUNCHES):
            state.add_(1.0)
        count += LAUNCHES
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
