"""One run of one rival: opened, warmed up, measured without a trainer and with two of them.

Without a trainer, the pace: images per second and CPU seconds, from after the first batches on.
Then the demo's stand-in trainer, and one three times as fast: how long each waits. The memory is
read in that second part, where loaders are furthest ahead, so that reading it slows down no pace.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from bench.processes import CpuMeter
from bench.speed.check import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    import torch

    from bench.speed.job import Job, Times
    from bench.speed.rivals import Rival

WARM_UP = 2
"""Batches before the clock runs, at least: one for each of two workers."""
LEAST_BATCHES = 3
"""Fewer make no rate; a run goes on for them after its time."""
BURSTS, BURST = 8, 2
"""How often ready batches are taken, and how many of them: loaders have two in any memory."""
FASTER = 3.0
"""How much faster the second trainer is than the demo's."""


@dataclass
class Trained:
    """What a stand-in trainer saw."""

    step_seconds: float
    waits: list[float] = field(default_factory=list)
    """Seconds blocked in `next()`, by step."""
    seconds: float = 0.0

    @property
    def wait_ratio(self) -> float:
        """Share of the time that it was blocked."""
        return sum(self.waits) / self.seconds


@dataclass
class HandOvers:
    """How long `next()` takes for batches that lie ready, in seconds."""

    cold: list[float] = field(default_factory=list)
    """Of the first one that is taken after a sleep: the processor has to wake up too."""
    warm: list[float] = field(default_factory=list)
    """Of those that are taken right after it."""


@dataclass
class Found:
    """What one run found."""

    first_batch_seconds: float
    """From before the adapter was opened; imports were done."""
    images: int
    seconds: float
    cpu_seconds: float
    """Of all processes of the run, the trainer's among them, not the store's."""
    pixel_bytes_per_image: float
    trained: list[Trained]
    """By the demo's trainer, and by the faster one."""
    hand_overs: HandOvers
    """Of batches that are ready."""
    same: dict[str, Any] | None = None
    """How a batch compares with the reference; None where it was not compared."""
    peak_memory_bytes: int = 0
    """Largest sum of the processes' proportional set sizes; the runner reads it."""

    def as_dict(self) -> dict[str, Any]:
        """It, and what follows from it, for programs."""
        found = asdict(self)
        for trained, told in zip(self.trained, found["trained"], strict=True):
            told["wait_ratio"] = trained.wait_ratio
        return found | {
            "images_per_second": self.images / self.seconds,
            "cpu_seconds_per_image": self.cpu_seconds / self.images,
        }


def run(
    rival: Rival,
    job: Job,
    times: Times,
    compare: bool,
    say: Callable[[str, Any], None],
    closing: ExitStack,
) -> None:
    """Runs a rival once.

    Args:
        rival: Who.
        job: What it has to do.
        times: How long it is measured.
        compare: Whether one of its batches is compared with the reference afterwards.
        say: Hears as `part` which one begins (`open`, `pace`, `trainer`, `check`), and as `found`
            what was found.
        closing: Gets what ends the rival.

    Raises:
        CheckError: The batch is not what it should be.
    """
    adapter = import_module(rival.module)
    say("part", "open")
    began = time.perf_counter()
    batches: Iterator[dict[str, torch.Tensor]] = adapter.open(job)
    closing.callback(batches.close)
    next(batches)
    first_batch_seconds = time.perf_counter() - began
    warm(batches, times.warm_up)
    say("part", "pace")
    images, seconds, cpu, pixel_bytes = pace(batches, times.pace)
    say("part", "trainer")
    steps = job.step_seconds, job.step_seconds / FASTER
    trained = [train(batches, step, times.trainer) for step in steps]
    hand_overs = take_ready(batches, 2 * job.step_seconds)
    say("part", "check")
    found = Found(
        first_batch_seconds, images, seconds, cpu, pixel_bytes / images, trained, hand_overs
    )
    if compare and rival.kind != "limit":
        found.same = check(next(batches), job)
    say("found", found.as_dict())


def warm(batches: Iterator[dict[str, torch.Tensor]], least_seconds: float) -> None:
    """Takes the batches after the first one that are not measured.

    Loaders that keep memory for reuse have all of it afterwards.
    """
    count, began = 1, time.perf_counter()
    while count < WARM_UP or time.perf_counter() - began < least_seconds:
        next(batches)
        count += 1


def pace(
    batches: Iterator[dict[str, torch.Tensor]], least_seconds: float
) -> tuple[int, float, float, int]:
    """Images, seconds, CPU seconds and bytes of pixels of a while without a trainer."""
    images = pixel_bytes = count = 0
    meter, began = CpuMeter(os.getpid()), time.perf_counter()
    while count < LEAST_BATCHES or time.perf_counter() - began < least_seconds:
        batch = next(batches)
        count += 1
        images += len(batch["image_grid_thw"])
        pixel_bytes += batch["pixel_values"].nbytes if "pixel_values" in batch else 0
        del batch  # its memory is the loader's again
    seconds = time.perf_counter() - began
    return images, seconds, meter.seconds(), pixel_bytes


def train(
    batches: Iterator[dict[str, torch.Tensor]], step_seconds: float, least_seconds: float
) -> Trained:
    """A while with a trainer that is busy for a fixed time with each batch.

    It stands in for one that computes on a GPU: the time is slept. Its first step, whose batch was
    asked for while nothing trained, is left out.
    """
    trained = Trained(step_seconds)
    began = 0.0
    for step in chain([None], iter(int, 1)):
        asked = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - asked
        time.sleep(step_seconds)
        del batch
        now = time.perf_counter()
        if step is None:
            began = now
            continue
        trained.waits.append(waited)
        trained.seconds = now - began
        if len(trained.waits) >= LEAST_BATCHES and trained.seconds >= least_seconds:
            break
    return trained


def take_ready(batches: Iterator[dict[str, torch.Tensor]], pause: float) -> HandOvers:
    """Lets batches become ready, and takes a few of them one after the other."""
    found = HandOvers()
    for _ in range(BURSTS):
        time.sleep(pause)
        for number in range(BURST):
            asked = time.perf_counter()
            batch = next(batches)
            (found.warm if number else found.cold).append(time.perf_counter() - asked)
            del batch
    return found
