"""The four rungs: the same data, the same training loop, four ways to load.

The trainer's step is set once, from the hand-written loader's own pace, so that this loader keeps
it waiting about 85 % of the time; all rungs then train with that same step.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import stoker
from stoker.demo.measure import Rung, StandInTrainer, run
from stoker.demo.store import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import torch

    from stoker.demo.python_loader import PythonLoader
    from stoker.demo.store import Store

WAIT_OF_PYTHON = 0.85
"""Share of the time that the trainer is to wait for the hand-written loader."""
CALIBRATION_BATCHES = 4
PYTHON_SECONDS = 45.0
"""The hand-written loader is stopped after this time: the demo shall take under 3 minutes."""

MEMORY = "1GiB"
"""What the engine may use: about five batches ahead, on small machines too."""
DRAIN_PASSES = 4
"""Passes over the data without a trainer: one alone is over before all memory was used once."""

# What the engine's own references differ by: Pillow's and torchvision's bicubic resize of the same
# 8-bit image give values up to 2 of 255 levels apart, and up to 11 where Pillow resizes the height
# first; 0.2 in the mean at most.
MOST_LEVELS, MEAN_LEVELS = 12.0, 0.2


@dataclass(frozen=True)
class Settings:
    """What the demo was asked for."""

    model: Path
    batch_size: int
    scratch: Path
    """Where the engine may put its index."""


@dataclass(frozen=True)
class Way:
    """One way to load."""

    name: str
    means: str
    """In plain words."""
    settings: dict[str, dict[str, int]] | None
    """What the recipe has beyond the defaults; None for the hand-written loader."""
    passes: int = 1
    """How often it goes over the data."""


WAYS = (
    Way(
        "python",
        "the hand-written Python loader: one GET, one decode, one resize after the other, in the "
        "trainer's own process",
        None,
    ),
    Way(
        "stoker, one at a time",
        "the engine held back to the same: one request, one thread, a batch only when it is "
        "asked for",
        {"engine": {"workers": 1, "prefetch": 0}, "fetch": {"concurrency": 1}},
    ),
    Way(
        "stoker, concurrent",
        "many requests in flight and all cores, but still a batch only when it is asked for",
        {"engine": {"prefetch": 0}},
    ),
    Way(
        "stoker, prefetching",
        "the engine as it comes: the next batches are made while the trainer trains (twice over "
        "the data, as once takes it only seconds)",
        {},
        passes=2,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """All that was measured."""

    rungs: list[Rung]
    step_seconds: float
    """The stand-in trainer's step."""
    drained: Rung
    """The last way without a trainer, `DRAIN_PASSES` times over the data."""
    python_images_per_second: float
    """What the hand-written loader gives without a trainer: its images by its time in `next()`."""
    same: dict[str, Any]
    """How the first batches of the two loaders compare."""

    @property
    def drained_speed_up(self) -> float:
        """How much faster stoker is than the hand-written loader, both without a trainer."""
        return self.drained.images_per_second / self.python_images_per_second


def climb(store: Store, settings: Settings, tell: Callable[[str], None]) -> Outcome:
    """Runs all rungs.

    Args:
        store: Where the data is.
        settings: What the demo was asked for.
        tell: Is told what is done next.
    """
    tell("comparing the first batches, setting the trainer's step")
    same = compare(store, settings)
    step = calibrate(store, settings)
    trainer = StandInTrainer(step)
    rungs = []
    for way in WAYS:
        tell(way.name)
        limit = PYTHON_SECONDS if way.settings is None else float("inf")
        rungs.append(measure(way, store, settings, trainer, at_most_seconds=limit))
    tell("stoker, without a trainer")
    drained = measure(WAYS[-1], store, settings, StandInTrainer(0.0), passes=DRAIN_PASSES)
    python = rungs[0]
    images_per_second = sum(python.images[1:]) / sum(python.waits[1:])
    return Outcome(rungs, step, drained, images_per_second, same)


def measure(
    way: Way,
    store: Store,
    settings: Settings,
    trainer: StandInTrainer,
    *,
    passes: int | None = None,
    at_most_seconds: float = float("inf"),
) -> Rung:
    """One way over the data."""
    began = time.perf_counter()
    loader = batches(way, store, settings, passes or way.passes)
    try:
        return run(way.name, loader, trainer, began=began, at_most_seconds=at_most_seconds)
    except (stoker.StokerError, OSError) as error:
        raise DemoError(f"{way.name}: {error}") from error
    finally:
        loader.close()


def batches(
    way: Way, store: Store, settings: Settings, passes: int = 1
) -> Iterator[dict[str, torch.Tensor]]:
    """The batches of a way, in the order of the source."""
    if way.settings is None:
        yield from python_loader(store, settings)
        return
    with stoker.Loader(recipe(way, store, settings, passes), rank=0, world_size=1) as loader:
        for batch in loader:
            yield batch.torch()


def python_loader(store: Store, settings: Settings) -> PythonLoader:
    """The hand-written loader; what it imports takes seconds, so it is imported late."""
    from stoker.demo.python_loader import PythonLoader

    return PythonLoader(
        store.endpoint, store.bucket, store.key, settings.model, settings.batch_size
    )


def recipe(way: Way, store: Store, settings: Settings, passes: int = 1) -> dict[str, Any]:
    """The recipe of a way: in the order of the source, so that batches compare."""
    document: dict[str, dict[str, Any]] = {
        "dataset": {"source": store.source, "index-dir": str(settings.scratch)},
        "plan": {"epochs": passes, "lanes": 1, "shuffle": "none"},
        "fetch": {"endpoint": store.endpoint, "region": "us-east-1"},
        "vision": {"pixels": "f32"},
        "pack": {"batch-size": settings.batch_size},
        "engine": {"memory": MEMORY},
    }
    for section, keys in (way.settings or {}).items():
        document[section] |= keys
    return {"model": str(settings.model)} | document


def calibrate(store: Store, settings: Settings) -> float:
    """The step at which the hand-written loader keeps the trainer waiting as much as it should."""
    loader = iter(python_loader(store, settings))
    next(loader)
    began = time.perf_counter()
    count = sum(1 for _ in islice(loader, CALIBRATION_BATCHES))
    pace = (time.perf_counter() - began) / count
    return pace * (1 - WAIT_OF_PYTHON) / WAIT_OF_PYTHON


def compare(store: Store, settings: Settings) -> dict[str, Any]:
    """Checks that both loaders give the same first batch: that all rungs do the same work.

    Returns:
        `pixel_levels_most` and `pixel_levels_mean`: how far apart the pixels are, in levels of 255;
        the resize of the two is not the same to the bit. All else is equal.

    Raises:
        DemoError: They differ by more.
    """
    python, ours = (next(batches(way, store, settings)) for way in (WAYS[0], WAYS[-1]))
    for name, expected in python.items():
        if name not in ours or ours[name].shape != expected.shape:
            raise DemoError(f"the two loaders' first batches differ in the shape of {name}")
        if name != "pixel_values" and not bool((ours[name] == expected).all()):
            raise DemoError(f"the two loaders' first batches differ in {name}")
    deviation = max(
        json.loads((settings.model / "preprocessor_config.json").read_text())["image_std"]
    )
    levels = (ours["pixel_values"] - python["pixel_values"]).abs() * (255 * deviation)
    most, mean = float(levels.max()), float(levels.mean())
    if most > MOST_LEVELS or mean > MEAN_LEVELS:
        raise DemoError(f"the two loaders' pixels are {mean:.3f} levels apart, {most:.1f} at most")
    return {
        "samples": len(python["input_ids"]),
        "equal": [name for name in python if name != "pixel_values"],
        "pixel_levels_most": most,
        "pixel_levels_mean": mean,
    }
