"""The bottlenecks: how each is provoked, what has to be named, and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

SMALL, LARGE, PHOTO = (4_000, 8_000), (60_000, 80_000), (900_000, 1_000_000)
"""Pixels of images, from and to."""


@dataclass(frozen=True)
class Way:
    """One run: store, data, recipe, trainer."""

    recipe: dict[str, Any] = field(default_factory=dict)
    """Values by path that replace those of `run.RECIPE`."""
    step: float = 0.0
    """Seconds that the trainer takes for a batch."""
    batches: int = 48
    store: dict[str, Any] = field(default_factory=dict)
    """As `stoker._native.S3Server` takes it."""
    pixels: tuple[int, int] = SMALL
    prefixes: int = 1
    """Over how many the images are spread."""
    huge: int = 0
    """Every so manieth image has 32 megapixels; 0: none."""
    size: tuple[int, int] | None = None
    """Each sample has one image of this size, in place of none to two of `pixels`."""
    text: bool = False
    """Each sample is a line of text alone."""
    kept: int = 0
    """Batches that the trainer keeps beside the one it trains on."""
    beside: Literal["nothing", "thread", "process", "processes"] = "nothing"
    """What computes in Python all the time: a thread of the trainer's process, another process, or
    one for each core."""
    switch_seconds: float = 0.005
    """How long a thread of Python may keep the GIL from others: Python's own value, or another."""
    ranks: tuple[dict[str, Any], ...] = ({},)
    """For each rank, values by path that replace the recipe's. They meet in each step."""


@dataclass(frozen=True)
class Scenario:
    """A bottleneck."""

    name: str
    provoked: str
    limit: str
    """That has to be named."""
    before: Way
    says: str
    """What the advice has to say."""
    followed: str
    after: Way | None
    """With what is said done; None where nothing is to be done."""


def _latency() -> Scenario:
    before = Way({"engine.prefetch": 0}, 0.1, store={"first_byte_seconds": 0.1})
    return Scenario(
        "store latency",
        "each answer of the store takes 0.1 s, and nothing is brought in ahead",
        "latency",
        before,
        "raise engine.prefetch",
        "`engine.prefetch` from 0 to 16",
        replace(before, recipe={"engine.prefetch": 16}),
    )


def _requests() -> Scenario:
    before = Way({"fetch.concurrency": 2}, 0.06, store={"first_byte_seconds": 0.1})
    return Scenario(
        "few requests",
        "the same, and two requests may be in flight",
        "requests",
        before,
        "raise fetch.concurrency",
        "`fetch.concurrency` from 2 to 64",
        replace(before, recipe={"fetch.concurrency": 64}),
    )


def _bandwidth() -> Scenario:
    before = Way({}, 0.06, store={"bytes_per_second": 400_000}, pixels=LARGE)
    return Scenario(
        "network bandwidth",
        "the network brings 0.4 MB/s, and images are of 70,000 pixels",
        "bandwidth",
        before,
        "use smaller images",
        "images of 6,000 pixels",
        replace(before, pixels=SMALL),
    )


def _throttling() -> Scenario:
    faults = {"throttle": {"rate": 40.0, "depth": 1}}
    # Else all that the run needs is there before its first batch is.
    before = Way({"engine.prefetch": 4}, 0.03, store={"faults": faults})
    return Scenario(
        "throttling",
        "the store takes 40 requests a second of each prefix, and there is one",
        "throttling",
        before,
        "spread the objects over more prefixes",
        "16 prefixes",
        replace(before, prefixes=16),
    )


def _decode() -> Scenario:
    before = Way({"engine.workers": 1, "engine.memory": "1GiB"}, 0.012, pixels=PHOTO)
    after = {"engine.workers": 2, "engine.memory": "1GiB", "vision.pixels": "u8"}
    return Scenario(
        "decode",
        "one worker has photos of a megapixel to decode, 4 for each step of 12 ms",
        "cores",
        before,
        "more cores",
        'one more worker, and `vision.pixels = "u8"`',
        replace(before, recipe=after),
    )


def _busy_machine() -> Scenario:
    two = {"engine.workers": 2, "engine.memory": "1GiB"}
    before = Way(two, 0.06, batches=32, pixels=PHOTO, beside="processes")
    return Scenario(
        "busy machine",
        "two workers have photos of a megapixel to decode, and a process on each core computes",
        "busy-machine",
        before,
        "end what else runs on this machine",
        "they are ended",
        replace(before, beside="nothing"),
    )


def _hand_over() -> Scenario:
    recipe = {"pack.batch-size": 1}
    before = Way(recipe, text=True, batches=200, beside="thread", switch_seconds=0.05)
    return Scenario(
        "hand-over",
        "another thread of the trainer's process computes in Python, and keeps the GIL for 50 ms",
        "hand-over",
        before,
        "move their work into another process",
        "a process of its own does the same",
        replace(before, beside="process"),
    )


def _trainer() -> Scenario:
    return Scenario(
        "slow trainer",
        "the trainer takes 0.12 s for a step, and nothing is slow",
        "trainer",
        Way({}, 0.12),
        "it is the limit itself",
        "nothing: there is no wait",
        None,
    )


def _slow_rank() -> Scenario:
    store = {"first_byte_seconds": 0.1}
    before = Way({}, 0.1, store=store, ranks=({}, {"engine.prefetch": 0}))
    return Scenario(
        "one slow rank",
        "of two ranks that meet in each step, the second brings nothing in ahead",
        "slow-rank",
        before,
        "on rank 1, the trainer waits",
        "`engine.prefetch` of that rank from 0 to 16",
        replace(before, ranks=({}, {"engine.prefetch": 16})),
    )


def _memory() -> Scenario:
    recipe = {"pack.batch-size": 1, "engine.workers": 2, "engine.memory": "64MiB"}
    before = Way(recipe, 0.008, batches=150, size=(512, 480), kept=5)
    return Scenario(
        "memory budget",
        "the memory is for six batches, and the trainer lets go of one when it asks",
        "memory",
        before,
        "raise engine.memory",
        "`engine.memory` from 64 MiB to 1 GiB",
        replace(before, recipe=recipe | {"engine.memory": "1GiB"}),
    )


def _large_image() -> Scenario:
    recipe = {"pack.batch-size": 1, "vision.max-pixels": 100_000, "engine.memory": "1GiB"}
    before = Way(recipe | {"engine.workers": 2}, 0.004, batches=192, huge=32)
    return Scenario(
        "one huge sample",
        "one image of 32 has 32 megapixels, batches are of one sample, steps of 4 ms",
        "large-image",
        before,
        "lower vision.max-pixels or image.max-pixels",
        "`image.max-pixels` of 4,000,000: other samples take their places",
        replace(before, recipe=before.recipe | {"image.max-pixels": 4_000_000}),
    )


SCENARIOS = (
    _bandwidth(),
    _latency(),
    _requests(),
    _throttling(),
    _decode(),
    _busy_machine(),
    _hand_over(),
    _trainer(),
    _slow_rank(),
    _memory(),
    _large_image(),
)
