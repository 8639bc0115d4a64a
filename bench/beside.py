"""One run of `bench.neighbour`, in the environment of its rival: a loop beside a loader."""

from __future__ import annotations

import json
import sys
import threading
import time
from importlib import import_module

from bench.processes import die_with_parent
from bench.speed.job import Job
from bench.speed.nursery import settle
from bench.speed.rivals import Rival

LAUNCHES = 50
"""Operations between two looks at the clock: about 50 microseconds."""


def main() -> None:
    """Hears on stdin what to run, says on stdout what it found."""
    die_with_parent()
    said = json.loads(sys.stdin.read())
    rival, job, seconds = Rival(**said["rival"]), Job(**said["job"]), said["seconds"]
    settle(job)
    batches = import_module(rival.module).open(job)
    next(batches)  # all that is needed is imported, and started
    stop, images = threading.Event(), [0]

    def drain() -> None:
        while not stop.is_set():
            images[0] += len(next(batches)["image_grid_thw"])

    taker = threading.Thread(target=drain, daemon=True)
    alone = [launches_per_second(seconds)]  # the loader is full, and has nothing to do
    taker.start()
    before, began = images[0], time.perf_counter()
    beside = launches_per_second(seconds)
    pace = (images[0] - before) / (time.perf_counter() - began)
    stop.set()
    taker.join()
    time.sleep(1.0)  # until it is full again
    alone.append(launches_per_second(seconds))
    batches.close()
    print(json.dumps({"alone": sum(alone) / 2, "beside": beside, "images_per_second": pace}))


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
