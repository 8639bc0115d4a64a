"""Whether copying batches to a GPU takes time from the trainer: hidden or not, pinned or not.

The trainer is a stand-in that multiplies matrices on the GPU for a fixed time per batch. It goes
through the same batches, ready in memory, in four ways: `batch.to`, which waits for its copies;
`stoker.torch.prefetch` from pageable memory and from pinned; and with batches that lie on the GPU
already, which is as fast as it can be. Writes a table to stdout, and `device.json`.

    .venv/bin/python -m bench.device

Without a CUDA device it says so and ends with 2.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import stoker
import torch
from stoker.demo import at_least
from stoker.torch import prefetch

from bench.command import Command
from bench.hand_over import data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stoker import Loader

WARM = 12
"""Batches before those that are timed: by then all blocks are pinned, and all kernels loaded."""
SLOW = 0.02
"""Share of the time that a loader may be waited for in a measurement of something else."""
SIDE = 4096
"""Of the matrices that the stand-in multiplies."""


def main(argv: list[str]) -> int:
    """Measures."""
    command = Command("device", docs=False)
    command.add("--rounds", type=at_least(2), default=40, help="batches that are timed")
    command.add("--photos", type=at_least(1), default=12, help="of a megapixel, in a batch")
    command.add(
        "--step-ms", type=float, default=60.0, help="what the stand-in computes for each batch"
    )
    arguments = command.parse(argv)
    if not torch.cuda.is_available():
        print(
            "bench.device measures copies to a GPU, and torch sees no CUDA device here: run it on "
            "a machine with one. Nothing was measured.",
            file=sys.stderr,
        )
        return 2
    step = stand_in(arguments.step_ms / 1e3)
    rows = []
    with tempfile.TemporaryDirectory(prefix="stoker-") as scratch:
        recipe = data(Path(scratch), arguments.model)
        recipe["pack"]["batch-size"] = arguments.photos
        recipe["engine"] = {"memory": "4GiB"}
        for pixels in ("f32", "bf16", "u8"):
            recipe["vision"]["pixels"] = pixels
            for name, batches in WAYS.items():
                rows.append(
                    {
                        "pixels": pixels,
                        "way": name,
                        **measure(recipe, batches, step, arguments.rounds),
                    }
                )
    found = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "step_seconds": arguments.step_ms / 1e3,
        "rows": rows,
    }
    return command.keep(arguments, found, table(found))


def stand_in(seconds: float) -> Callable[[dict[str, Any]], None]:
    """A step of so long on the GPU, which reads the batch first; launched, not waited for."""
    matrix = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(matrix, matrix)

    multiply(20)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    multiply(200)
    torch.cuda.synchronize()
    times = max(1, round(200 * seconds / (time.perf_counter() - begun)))

    def step(batch: dict[str, Any]) -> None:
        batch["pixel_values"].sum()
        multiply(times)

    return step


def to(loader: Loader) -> Iterator[dict[str, Any]]:
    """As a loop does it without anything."""
    return (batch.to("cuda") for batch in loader)


def pageable(loader: Loader) -> Iterator[dict[str, Any]]:
    """Ahead, from memory that is not pinned."""
    batches = prefetch(loader, "cuda")
    batches._pinned = None
    return iter(batches)


def pinned(loader: Loader) -> Iterator[dict[str, Any]]:
    """Ahead, from pinned memory."""
    return iter(prefetch(loader, "cuda"))


def there(loader: Loader) -> Iterator[dict[str, Any]]:
    """The first batch, which lies on the GPU, again and again."""
    batch = next(loader).to("cuda")
    return itertools.repeat(batch)


WAYS = {
    "batch.to": to,
    "prefetch, pageable": pageable,
    "prefetch, pinned": pinned,
    "no copy": there,
}


def measure(
    recipe: dict[str, Any],
    batches: Callable[[Loader], Iterator[dict[str, Any]]],
    step: Callable[[dict[str, Any]], None],
    rounds: int,
) -> dict[str, Any]:
    """Seconds from the end of a step to the end of the next, and of the host in `next`."""
    ends, hosts = [], []
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        source = batches(loader)
        before = None
        for _ in range(WARM + 1 + rounds):
            begun = time.perf_counter()
            batch = next(source)
            hosts.append(time.perf_counter() - begun)
            step(batch)
            end = torch.cuda.Event()
            end.record()
            if before is not None:
                # Like a trainer that logs the loss of the step before: the host is a step ahead.
                before.synchronize()
                ends.append(time.perf_counter())
            before = end
        nbytes = sum(t.nbytes for t in batch.values() if isinstance(t, torch.Tensor))
        torch.cuda.synchronize()
        ratio = loader.report().wait.window_ratio
    steps = [after - before for before, after in itertools.pairwise(ends[WARM - 1 :])]
    return {
        "bytes": nbytes,
        "step_seconds": median(steps),
        "slowest_step_seconds": max(steps),
        "next_seconds": median(hosts[WARM + 1 :]),
        "loader_wait_ratio": ratio,
    }


def table(found: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        f"{found['device']}, torch {found['torch']}; medians, in milliseconds; on the GPU each "
        f"step computes for {1e3 * found['step_seconds']:.0f}",
        "",
        "| pixels | batch on the GPU | way | step | more than without copies | host in `next` |",
        "|---|---|---|---|---|---|",
    ]
    bare = {row["pixels"]: row["step_seconds"] for row in found["rows"] if row["way"] == "no copy"}
    for row in found["rows"]:
        more = row["step_seconds"] - bare[row["pixels"]]
        lines.append(
            f"| {row['pixels']} | {row['bytes'] / 1e6:.0f} MB | {row['way']} "
            f"| {1e3 * row['step_seconds']:.2f} | {1e3 * more:+.2f} "
            f"| {1e3 * row['next_seconds']:.2f} |"
        )
    waits = [row["loader_wait_ratio"] or 0.0 for row in found["rows"] if row["way"] != "no copy"]
    if max(waits) > SLOW:
        lines += [
            "",
            f"The loader was up to {max(waits):.0%} of the time too slow for this step, so what is "
            "above is not only copies: give a larger --step-ms, or fewer --photos.",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
