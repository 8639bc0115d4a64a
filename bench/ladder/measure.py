"""One rung: made, warmed up, compared with rung 0, then measured with the demo's trainer and clock.

Warm-up and comparison take two batches before the clock runs; the clock then sees the same batches
from the first one on, with everything that had to be started running.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from stoker.demo import measure
from stoker.demo.rungs import WAIT_OF_PYTHON
from stoker.demo.store import DemoError

from bench.ladder.same import compare
from bench.processes import CpuMeter

if TYPE_CHECKING:
    import torch

    from bench.ladder.job import Job, Loader
    from bench.ladder.ways import Way

WARM_UP = 2
"""Batches: one for each of two workers."""
CALIBRATION = 8
"""Batches from which rung 0's pace is known."""


@dataclass(frozen=True)
class Found:
    """What one way did."""

    rung: measure.Rung
    first_batch_seconds: float
    """From before its loader was made; imports were done."""
    cpu_seconds_per_image: float
    """Of all its processes, the trainer's among them."""
    store_cpu_seconds_per_image: float
    pixel_bytes_per_image: float
    same: dict[str, Any]
    """How its first batches compare with those of rung 0."""


class Trainer(measure.StandInTrainer):
    """The stand-in, which also reads the meters: in the first step, which is counted apart."""

    def __init__(self, step_seconds: float, job: Job) -> None:
        super().__init__(step_seconds)
        self.job = job
        self.steps = self.pixel_bytes = 0
        self.began = self.meters()

    def train(self, batch: dict[str, torch.Tensor]) -> None:
        """One step."""
        super().train(batch)
        self.steps += 1
        if self.steps == 1:
            self.began = self.meters()
        elif "pixel_values" in batch:
            self.pixel_bytes += batch["pixel_values"].nbytes

    def meters(self) -> tuple[CpuMeter, CpuMeter]:
        """CPU time from now on: of this process and its descendants, and of the store."""
        return CpuMeter(os.getpid()), CpuMeter(self.job.store.process)

    def used(self) -> list[float]:
        """CPU seconds since the first step."""
        return [meter.seconds() for meter in self.began]


def climb(way: Way, job: Job, step: float | None, at_most_seconds: float) -> Found:
    """Runs one rung.

    Args:
        way: The rung.
        job: What it has to do.
        step: The trainer's step in seconds; None to set it by this rung's own pace.
        at_most_seconds: After this time no further step is begun.

    Raises:
        DemoError: Its batches are not those of rung 0, or it was too slow to be measured.
    """
    module = import_module(f"bench.ladder.rungs.{way.module}")
    began = time.perf_counter()
    loader: Loader = module.Loader(job)
    try:
        batches = loader.batches(WARM_UP)
        first = next(batches)
        first_batch_seconds = time.perf_counter() - began
        same = compare([first, *batches], job)
        del first, batches
        trainer = Trainer(pace(loader) if step is None else step, job)
        began, batches = time.perf_counter(), loader.batches(job.batches)
        rung = measure.run(way.name, batches, trainer, began=began, at_most_seconds=at_most_seconds)
        images = sum(rung.images[1:])
        if not images:
            raise DemoError(
                f"it gave no image after its first batch in {at_most_seconds:.0f} s, so nothing "
                "was measured: run the ladder on a quieter machine"
            )
        used, store_used = trainer.used()
        return Found(
            rung,
            first_batch_seconds,
            used / images,
            store_used / images,
            trainer.pixel_bytes / images,
            same,
        )
    finally:
        loader.close()


def pace(loader: Loader) -> float:
    """The step at which a loader keeps the trainer waiting as long as rung 0 shall."""
    batches = loader.batches(1 + CALIBRATION)
    next(batches)
    began = time.perf_counter()
    count = sum(1 for _ in batches)
    return (time.perf_counter() - began) / count * (1 - WAIT_OF_PYTHON) / WAIT_OF_PYTHON
