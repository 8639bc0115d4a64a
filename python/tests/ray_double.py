"""Stand-ins for the engine's two halves, for tests that say exactly what goes wrong where.

The recipe is a dict of its own: `batches`, `bytes` (of each), `seconds` (to make one) and `faults`,
by the number of a batch: the name of one in `FAULTS`, and how often it happens.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from stoker.errors import RecipeError, SampleError
from stoker.ray import RayLoader


class Batch:
    """Numbers that follow from the batch's own."""

    def __init__(self, sequence: int, nbytes: int) -> None:
        self.sequence = sequence
        self.pid = os.getpid()
        self.content = np.full(nbytes, sequence % 251, np.uint8)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes


class Maker:
    def __init__(self, recipe: dict, *, overrides: dict) -> None:
        self.recipe = recipe
        self.threads = overrides["engine.workers"]
        self.made = 0
        if recipe.get("opens") == "never":
            raise RecipeError("model: there is none on this host", problems=[])
        if recipe.get("opens") == "dying":
            os._exit(3)
        for name in recipe.get("index", []):
            kept = Path(recipe["dataset"]["index-dir"]) / name
            assert kept.read_bytes() == bytes(range(256)) * 40000, "the index came whole"

    def make(self, sequence: int, ahead: list[int], window: int) -> Batch:
        assert sequence not in ahead
        assert window <= sequence, "where the front stands"
        kind, times = self.recipe.get("faults", {}).get(str(sequence), (None, 0))
        if kind and happens(Path(self.recipe["folder"]), sequence, times):
            FAULTS[kind](sequence)
        time.sleep(self.recipe.get("seconds", 0.01))
        self.made += 1
        return Batch(sequence, self.recipe.get("bytes", 1000))

    def sizes_known(self) -> list[int]:
        return [0]

    def evidence(self) -> dict[str, float]:
        return {}

    def report(self) -> SimpleNamespace:
        busy = self.made * self.recipe.get("seconds", 0.01)
        read = self.made * self.recipe.get("reads", 100)
        rooms = [
            {"room": "fetch", "busy_seconds": busy, "items": self.made, "bytes": read},
            {"room": "image", "busy_seconds": busy, "items": self.made, "bytes": read},
        ]
        fetch = {"requests": self.made, "retries": 0, "peak_in_flight": 1}
        memory = dict.fromkeys(MEMORY, 0)
        numbers = {
            "rooms": rooms,
            "fetch": fetch,
            "memory": memory,
            "workers": self.threads,
            "worker_seconds": busy,
            "worker_delay_seconds": 0.0,
            "process_seconds": busy,
            "first_byte_histogram": NONE,
        }
        return SimpleNamespace(as_dict=lambda: numbers)


NONE = {"bounds_seconds": [], "counts": [0], "sum_seconds": 0.0}
"""A histogram of nothing."""

MEMORY = (
    "compressed_bytes",
    "peak_compressed_bytes",
    "arena_bytes",
    "peak_arena_bytes",
    "leased_bytes",
)


def happens(folder: Path, sequence: int, times: int) -> bool:
    """Whether a fault that comes so many times is still to come; in all processes together."""
    for time_ in range(times):
        try:
            (folder / f"fault-{sequence}-{time_}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def hang(_: int) -> None:
    """Answers pulses, and never finishes this one."""
    time.sleep(3600)


def bad(sequence: int) -> None:
    raise SampleError(f"sample of batch {sequence} is bad", sample=(0, sequence))


FAULTS = {
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": hang,
    "bad": bad,
}


class Front:
    def __init__(self, recipe: dict, *, rank, world_size, group) -> None:
        assert group is None
        self.recipe = recipe
        self.rank, self.world_size = rank or 0, world_size or 1
        self.done = 0
        self.ended = False
        self.blocked = []

    def sequence_at(self, steps: int) -> int | None:
        step = self.done + steps
        inside = step < self.recipe["batches"]
        return step * self.world_size + self.rank if inside else None

    def window(self) -> int:
        return self.done * self.world_size

    def hand_over(self, batch: Batch, blocked: float) -> Batch:
        assert batch.sequence == self.sequence_at(0)
        self.done += 1
        self.blocked.append(blocked)
        return batch

    def end(self) -> None:
        self.ended = True

    def rewind(self) -> None:
        self.done, self.ended = 0, False

    def sizes_known(self) -> list[int]:
        return [0]

    def index_files(self) -> list[list[Path]]:
        return [[Path(path) for path in self.recipe.get("index_files", [])]]

    def left(self) -> int:
        return max(0, self.recipe["batches"] - self.done)

    def close(self) -> None:
        pass

    def report(self) -> SimpleNamespace:
        wall, waited = sum(self.blocked[1:]) * 2, sum(self.blocked[1:])
        wait = {
            "batches": self.done,
            "first_batch_seconds": 0.0,
            "blocked_seconds": waited,
            "wall_seconds": wall,
            "ratio": waited / wall if wall else None,
            "window_ratio": None,
            "p50_seconds": None,
            "p95_seconds": None,
            "p99_seconds": None,
        }
        numbers = {
            "wait": wait,
            "rooms": [],
            "fetch": {"requests": 0, "retries": 0, "peak_in_flight": 0},
            "memory": dict.fromkeys(MEMORY, 0),
            "samples": 0,
            "images": 0,
            "tokens": 0,
            "padding": 0,
            "packing": None,
            "neutral_images": 0,
            "replaced": 0,
            "neutralised": 0,
            "left_out": 0,
            "bad_samples": [],
            "flaws": [],
            "workers": 0,
            "worker_seconds": 0.0,
            "worker_delay_seconds": 0.0,
            "process_seconds": 0.0,
            "wait_histogram": NONE,
            "first_byte_histogram": NONE,
        }
        return SimpleNamespace(as_dict=lambda: numbers)


class Loader(RayLoader):
    """A `RayLoader` over the stand-ins."""

    _read = staticmethod(lambda recipe, _: dict(recipe))
    _open_front = Front
    _open_maker = Maker
