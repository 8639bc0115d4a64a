"""A and B: what it brings to put data workers here or there, when cards are the limit.

All that counts is what crosses a card. Three ranks whose workers sit on one host share its card,
and fetch what one card brings; where each rank is served from its own host there are three cards.
Workers on other hosts cost the trainer's card the finished tensors instead of the photos: with k of
them, each with a card of rate c, the photos come at k x c, and the tensors, `ratio` times as many
bytes, leave room for c / ratio. So k hosts are worth min(k, 1 / ratio) of a trainer's own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.cluster.bench import HOSTS
from bench.cluster.measure import steady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cluster.bench import Bench
    from bench.cluster.driver import Trainer
    from bench.cluster.measure import Steady

TRAINERS = HOSTS[:3]
WORKERS = HOSTS[1:]

A_RATIO = 2.5
"""What spreading must bring at least, of the 3 that three cards can."""
B_TOLERANCE = 0.2
"""How far from the model a ratio may be."""


@dataclass(frozen=True)
class Point:
    """One way to ship, for B."""

    pixels: str
    max_pixels: int
    """Photos are scaled down to this."""


# A photo takes a quarter of a byte for each of its 1.4 million pixels. A pixel that is left of it
# is shipped as 3 bytes in u8, 12 in bf16 (there are two frames of it), 24 in f32. So these are
# ratios of about a quarter, a half, two thirds (the model says 1.5), one and two.
POINTS = (
    Point("u8", 30_000),
    Point("u8", 60_000),
    Point("u8", 80_000),
    Point("bf16", 30_000),
    Point("f32", 30_000),
)


def model(hosts: int, shipped_per_fetched: float) -> float:
    """What so many hosts that only load are worth, in cards of a trainer that loads for itself."""
    return min(hosts, 1 / shipped_per_fetched)


def ranks(bench: Bench, trainers: dict[str, Trainer]) -> dict[str, Any]:
    """A: three trainers' hosts, the workers of all packed on the first, and each on its own."""
    found = {}
    counted = bench.counters()
    for name, where in (("packed", packed_on(TRAINERS[0])), ("spread", HERE)):
        bench.tell(f"A: {name}")
        jobs = {
            trainers[host]: loader(bench, POINTS[0], where, rank=rank, world_size=len(TRAINERS))
            for rank, host in enumerate(TRAINERS)
        }
        found[name] = steady(bench.network, jobs, bench.photos.row_bytes, bench.scale.window)
    packed, spread = found["packed"], found["spread"]
    return {
        "packed_bytes_per_second": packed.fetched,
        "spread_bytes_per_second": spread.fetched,
        "ratio": spread.fetched / packed.fetched,
        "model": len(TRAINERS),
        "ray": asdict(bench.counters() - counted),
        "packed": details(packed),
        "spread": details(spread),
    }


def sweep(bench: Bench, trainer: Trainer) -> list[dict[str, Any]]:
    """B: one trainer's host and three that only load, over what is shipped of what is fetched."""

    def run(point: Point, where: dict[str, Any]) -> Steady:
        jobs = {trainer: loader(bench, point, where)}
        return steady(bench.network, jobs, bench.photos.row_bytes, bench.scale.window)

    rows: list[dict[str, Any]] = []
    packed: dict[str, Steady] = {}
    counted = bench.counters()
    for point in POINTS:
        bench.tell(f"B: {point.pixels}, images of at most {point.max_pixels} pixels")
        # Where nothing is shipped, the size of what would be makes no difference.
        if point.pixels not in packed:
            packed[point.pixels] = run(point, HERE)
        here, there = packed[point.pixels], run(point, spread_over(WORKERS))
        before, counted = counted, bench.counters()
        shipped = there.delivered / there.fetched
        rows.append(
            {
                "pixels": point.pixels,
                "max_pixels": point.max_pixels,
                "shipped_per_fetched": shipped,
                "ratio": there.fetched / here.fetched,
                "model": model(len(WORKERS), shipped),
                "ray": asdict(counted - before),
                "packed": details(here),
                "spread": details(there),
            }
        )
    return rows


HERE = {"placement": "local"}
"""Workers on the trainer's own host."""


def packed_on(host: str) -> dict[str, Any]:
    """The workers of all ranks on one host."""
    return {"placement": "packed", "node_labels": {"host": host}}


def spread_over(hosts: Sequence[str]) -> dict[str, Any]:
    """Workers on each of these hosts."""
    return {"placement": "spread", "node_labels": {"host": f"in({','.join(hosts)})"}}


def loader(
    bench: Bench, point: Point, where: dict[str, Any], *, rank: int = 0, world_size: int = 1
) -> dict[str, Any]:
    """The arguments of a loader."""
    recipe = bench.recipe(point.pixels, point.max_pixels)
    return {"recipe": recipe, "rank": rank, "world_size": world_size} | where


def details(run: Steady) -> dict[str, Any]:
    """What is kept of a run beside its rate."""
    return {
        "fetched_bytes_per_second": run.fetched,
        "delivered_bytes_per_second": run.delivered,
        "batches": run.batches,
        "cores_busy": run.cores_busy,
        "cores_limit": run.cores_limit,
        "cards_bytes_per_second": run.cards,
        "report": run.report,
    }
