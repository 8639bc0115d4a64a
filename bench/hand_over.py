"""How a finished batch comes to a trainer: how long that takes, and where it lies.

In this process a loader has it ready. Through Ray's object store a data worker (the one that
`stoker.ray` hires) makes batches of `BYTES`, and this process takes them as a trainer on the same
node does. Writes a table to stdout, and `hand_over.json`.

    .venv/bin/python -m bench.hand_over
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
from stoker.demo import at_least
from stoker.demo.store import DemoError

from bench.command import Command
from bench.ladder.local_ray import local_ray

if TYPE_CHECKING:
    from stoker import Batch

BYTES = 64_000_000
"""A batch, at least: three photos of a little under a megapixel, as `f32` patches."""
SIZE = (1024, 928)
WARM = 3
"""Batches that are not timed, before those that are."""
PHOTOS = (1, 3)
"""Photos of a batch that is handed over in this process: the time must not depend on them."""
READY = 0.5
"""Seconds in which as many of these batches are made as are taken then."""
BURST = 3
"""Batches that are taken one after the other."""
HERE = {
    "cold_next_seconds": "next(loader), in this process, after a sleep",
    "cold_torch_seconds": "batch.torch(), after it",
    "warm_next_seconds": "next(loader), right after another",
    "warm_torch_seconds": "batch.torch(), after it",
}
"""What is measured in this process."""


def main(argv: list[str]) -> int:
    """Measures.

    Raises:
        DemoError: A batch was not what it should be, or Ray spilled.
    """
    command = Command("hand_over", docs=False)
    command.add("--rounds", type=at_least(2), default=20, help="batches that are timed")
    arguments = command.parse(argv)
    counters: dict[str, float] = {}
    # Ray's workers import this package.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [".", os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="stoker-") as scratch:
        recipe = data(Path(scratch), arguments.model)
        here = [in_process(recipe, photos, arguments.rounds) for photos in PHOTOS]
        with local_ray(2, Path(scratch), counters):
            found = measure(recipe, WARM + arguments.rounds)
    found |= {"ray": counters, "in_process": here}
    return command.keep(arguments, found, table(found))


def data(folder: Path, model: Path) -> dict[str, Any]:
    """Writes three photos, and gives a recipe that repeats them."""
    from PIL import Image

    noise = np.random.default_rng(0)
    lines = []
    for number in range(3):
        coarse = noise.integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(coarse).resize(SIZE).save(folder / f"{number}.jpg")
        words = [
            {"role": "user", "content": "<image>"},
            {"role": "assistant", "content": "A photo."},
        ]
        lines.append(json.dumps({"messages": words, "images": [f"{number}.jpg"]}))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    return {
        "model": str(model.absolute()),
        "dataset": {"source": str(folder / "train.jsonl")},
        "plan": {"lanes": 1},
        "vision": {"pixels": "f32"},
        "pack": {"batch-size": 3},
        "engine": {"workers": 1},
    }


def in_process(recipe: dict[str, Any], photos: int, rounds: int) -> dict[str, Any]:
    """Takes batches that are ready, and makes torch's tensors of them."""
    import stoker

    found: dict[str, list[float]] = {name: [] for name in HERE}
    with stoker.Loader(recipe, overrides={"pack.batch-size": photos}) as loader:
        for number in range(1 + rounds):
            time.sleep(READY)
            for place in range(BURST):
                began = time.perf_counter()
                batch = next(loader)
                taken = time.perf_counter()
                views = batch.torch()
                viewed = time.perf_counter()
                when = "warm" if place else "cold"
                if number:  # the first ones are slower
                    found[f"{when}_next_seconds"].append(taken - began)
                    found[f"{when}_torch_seconds"].append(viewed - taken)
                nbytes = batch.nbytes
                del batch, views
    return {"batch_bytes": nbytes} | {name: spread(seconds) for name, seconds in found.items()}


def measure(recipe: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Takes batches one after the other, each in the object store before it is asked for."""
    import ray
    import stoker
    from stoker._native import Maker
    from stoker.ray.worker import THREADS, StokerWorker

    worker = ray.remote(concurrency_groups=THREADS)(StokerWorker).options(num_cpus=1).remote(Maker)
    if error := ray.get(worker.open.remote(recipe, {})).error:
        raise error
    gets: list[float] = []
    copies: list[float] = []
    with stoker.Loader(recipe) as loader:
        for sequence in range(rounds):
            answer, ref = worker.make.remote(sequence, [], None)
            ray.get(answer)
            ray.wait([ref])
            began = time.perf_counter()
            batch = ray.get(ref)
            gets.append(time.perf_counter() - began)
            check(batch, next(loader))
            copies.append(copy_seconds(batch))
            nbytes = batch.nbytes
            del batch, ref
        puts = ray.get(worker.__ray_call__.remote(put_seconds, rounds))
    return {
        "batch_bytes": nbytes,
        "get_seconds": spread(gets[WARM:]),
        "put_seconds": spread(puts[WARM:]),
        "copy_seconds": spread(copies[WARM:]),
    }


def put_seconds(worker: Any, rounds: int) -> list[float]:
    """How long the worker takes to put a batch that it has made."""
    import ray

    batch, seconds = worker._maker.make(0, []), []
    for _ in range(rounds):
        began = time.perf_counter()
        ref = ray.put(batch)
        seconds.append(time.perf_counter() - began)
        del ref
    return seconds


def check(batch: Batch, wanted: Batch) -> None:
    """Refuses a batch that is too small, differs, can be written to, or is no view of the store.

    Raises:
        DemoError: What is wrong.
    """
    wrong = [] if batch.nbytes >= BYTES else [f"it has {batch.nbytes} bytes"]
    for name, array in batch.numpy().items():
        if not np.array_equal(array, wanted.numpy()[name]):
            wrong.append(f"{name} differs")
        if "plasma" not in mapping(array.ctypes.data):
            wrong.append(f"{name} lies outside of shared memory")
        if array.flags.writeable:
            wrong.append(f"{name} can be written to")
    if wrong:
        raise DemoError("the batch is not what the worker made: " + ", ".join(wrong))


def mapping(address: int) -> str:
    """The file that is mapped at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, *_, name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in ends.split("-"))
        if low <= address < high:
            return name
    return ""


def copy_seconds(batch: Batch) -> float:
    """How long one copy of the batch takes, into memory that is there already."""
    pixels = batch.numpy()["pixel_values"]
    copy = np.zeros_like(pixels)
    copy.fill(1)
    began = time.perf_counter()
    np.copyto(copy, pixels)
    return time.perf_counter() - began


def spread(seconds: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    return {"median": median(seconds), "p95": quantiles(seconds, n=20)[-1]}


def table(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = ["| | batch | median | p95 |", "|---|---:|---:|---:|"]
    for here in found["in_process"]:
        rows += [row(words, here, name) for name, words in HERE.items()]
    for key, name in (
        ("get_seconds", "ray.get"),
        ("put_seconds", "ray.put"),
        ("copy_seconds", "one copy, for comparison"),
    ):
        rows.append(row(name, found, key))
    return "\n".join(rows)


def row(name: str, found: dict[str, Any], key: str) -> str:
    """One line of the table."""
    times = [f"{found[key][which] * 1e3:.3f} ms" for which in ("median", "p95")]
    return f"| {name} | {found['batch_bytes'] / 1e6:.0f} MB | {times[0]} | {times[1]} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
