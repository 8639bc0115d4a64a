"""The trainer, which is a stand-in, and the clock around it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class StandInTrainer:
    """Stands in for a trainer: holds its "device" for a fixed time per batch.

    A GPU computes without the CPU, so the time is slept.
    """

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds

    def train(self, batch: dict[str, Any]) -> None:
        """One step."""
        del batch
        if self.step_seconds:
            time.sleep(self.step_seconds)


@dataclass
class Rung:
    """What one loader did with one trainer.

    The first batch, for which every loader waits, is counted apart: the ratios and rates are those
    of all steps after it.
    """

    name: str
    step_seconds: float
    waits: list[float] = field(default_factory=list)
    """Seconds blocked in `next()`, by step; the first from before the loader was made."""
    ended: list[float] = field(default_factory=list)
    """When each step was over, in seconds from before the loader was made."""
    images: list[int] = field(default_factory=list)
    """Images by step."""
    complete: bool = True
    """Whether it saw all the data."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.ended[-1]

    @property
    def steady_seconds(self) -> float:
        """Wall time of all steps after the first."""
        return self.ended[-1] - self.ended[0]

    @property
    def images_per_second(self) -> float:
        """Images of these steps by their wall time."""
        return sum(self.images[1:]) / self.steady_seconds

    @property
    def wait_ratio(self) -> float:
        """Share of the wall time that the trainer was blocked in `next()`."""
        return sum(self.waits[1:]) / self.steady_seconds

    @property
    def device_busy(self) -> float:
        """Share of the wall time that the device worked."""
        return self.step_seconds * (len(self.ended) - 1) / self.steady_seconds

    def as_dict(self) -> dict[str, Any]:
        """What `demo.json` holds of it."""
        return {
            "name": self.name,
            "images_per_second": self.images_per_second,
            "wait_ratio": self.wait_ratio,
            "device_busy": self.device_busy,
            "seconds": self.seconds,
            "first_batch_seconds": self.waits[0],
            "batches": len(self.ended),
            "images": sum(self.images),
            "complete": self.complete,
            "wait_seconds": self.waits,
            "ended_seconds": self.ended,
        }


def run(
    name: str,
    loader: Iterable[dict[str, Any]],
    trainer: StandInTrainer,
    *,
    began: float,
    at_most_seconds: float = float("inf"),
) -> Rung:
    """The training loop: the same for all loaders.

    Args:
        name: The rung's name.
        loader: Gives batches as dicts of tensors.
        trainer: Takes them.
        began: `time.perf_counter()` from before the loader was made.
        at_most_seconds: After this time no further batch is asked for.
    """
    rung = Rung(name, trainer.step_seconds)
    batches, asked = iter(loader), began
    while asked - began < at_most_seconds:
        batch = next(batches, None)
        got = time.perf_counter()
        if batch is None:
            break
        rung.waits.append(got - asked)
        rung.images.append(len(batch.get("image_grid_thw", ())))
        trainer.train(batch)
        del batch  # its memory is the loader's again
        asked = time.perf_counter()
        rung.ended.append(asked - began)
    else:
        rung.complete = False
    return rung
