"""No loader: what `bench.neighbour` finds beside it is the error of the method."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.speed.job import Job

SECONDS = 0.05
"""From one batch to the next: of the loaders, stoker takes 14 ms for one, and DataLoader 160."""


def open(_job: Job) -> Iterator[dict[str, tuple[()]]]:  # noqa: A001 (the adapters' word)
    """Batches with nothing in them."""
    while True:
        time.sleep(SECONDS)
        yield {"image_grid_thw": ()}
