"""How much a loader at full load slows down the program beside it.

A trainer's Python loop launches small work all the time; if it comes late, the device idles. Here
that loop is small operations of torch on one thread, and a loader runs at full load in the same
program, as a trainer has it: the loop takes its batches, as often as it makes them with the machine
to itself. The loop runs alone and beside the loader in turns, and each turn beside it is compared
with the two around it; while it has to wait for a batch it launches nothing, which is told apart
and not counted as slower. Turns
are short and many, because the pace of a machine that others share changes from second to second,
by more than what is looked for. The store has the least priority there is, so what is measured is
the loader's doing. Three rows are no loaders: beside nothing the loop should not be slowed, which
tells the error of the method; a process that counts tells what it costs on this machine that
another core is busy with anything; and libjpeg-turbo alone, what decoding does. Writes a table to
stdout, and `neighbour.json`.

    .venv/bin/python -m bench.neighbour
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from stoker.demo import at_least
from stoker.demo.store import DemoError

from bench import page
from bench.command import Command
from bench.speed.data import SHARDS, limited, make
from bench.speed.job import Job
from bench.speed.rivals import Rival, named
from bench.speed.runner import missing
from bench.speed.scenarios import MEGAPIXEL, Scenario
from bench.speed.store import serve

ADAPTER = "bench.controls"
CONTROLS = (
    Rival("nothing", "nothing", ADAPTER, "no loader", copies=0, kind="limit", place="project"),
    Rival(
        "spin",
        "a process that counts",
        ADAPTER,
        "no loader, and another core is busy",
        copies=0,
        kind="limit",
        place="project",
        options={"spins": True},
    ),
)
RIVALS = ("nothing", "spin", "libjpeg-turbo", "stoker-u8", "stoker-f32", "spdl", "dataloader")
SCENARIO = Scenario("neighbour", "photos of 1 megapixel", MEGAPIXEL, 64, 8)
NAME = "neighbour"
"""Of the markers in the page."""
LEAST_NICE = 19
Found = dict[str, list[float]]
"""Of one run, what its turns found."""


def main(argv: list[str]) -> int:
    """Measures.

    Raises:
        DemoError: A run failed.
    """
    command = Command(NAME)
    command.add("--rivals-python", type=Path, default=Path(".setup/rivals/bin/python"))
    command.add("--rounds", type=at_least(1), default=2)
    command.add("--pairs", type=at_least(1), default=40, help="of turns, in each run")
    command.add("--seconds", type=float, default=0.3, help="of a turn")
    command.add("--rival", action="append", choices=RIVALS, help="only this; repeatable")
    arguments = command.parse(argv)
    pythons = {"rivals": arguments.rivals_python.absolute(), "project": Path(sys.executable)}
    cores = os.cpu_count() or 1
    turns = {"pairs": arguments.pairs, "seconds": arguments.seconds}
    runs: dict[str, list[Found]] = {}
    with tempfile.TemporaryDirectory(prefix="stoker-") as scratch:
        place = Path(scratch)
        data = make(SCENARIO, place / "data", seed=0)
        model = limited(arguments.model, place / "model", None)
        with serve(data.folder, "none", 0, nice=LEAST_NICE) as store:
            del store["process"]
            for _ in range(arguments.rounds):
                for name in arguments.rival or RIVALS:
                    rival = one(name)
                    for workers in (0,) if rival in CONTROLS else (max(cores - 1, 1), cores):
                        job = order(rival, store, data.folder, model, place, workers)
                        found = run(rival, job, turns, pythons)
                        runs.setdefault(f"{name} {workers}", []).append(found)
    found = turns | {"runs": runs}
    return command.keep(arguments, found, table(runs))


def one(name: str) -> Rival:
    """The one of this name."""
    return next((control for control in CONTROLS if control.name == name), None) or named(name)


def order(
    rival: Rival, store: dict[str, Any], folder: Path, model: Path, place: Path, workers: int
) -> Job:
    """What a run has to do."""
    (scratch := place / "run").exists() and shutil.rmtree(scratch)
    scratch.mkdir()
    (cache := place / "cache").mkdir(exist_ok=True)
    return Job(
        **store,
        folder=str(folder),
        model=str(model.absolute()),
        samples=SCENARIO.samples,
        batch_size=SCENARIO.batch_size,
        cores=workers,
        shards=SHARDS,
        source="objects",
        step_seconds=0.0,
        cache=str(cache),
        scratch=str(scratch),
        options=rival.options | {"engine": {"workers": workers}},
    )


def run(rival: Rival, job: Job, turns: dict[str, float], pythons: dict[str, Path]) -> Found:
    """Runs a rival once, in a process of its own.

    Raises:
        DemoError: It failed, or its environment is missing.
    """
    if why := missing(pythons[rival.place]):
        raise DemoError(f"{rival.title}: {why}")
    said = json.dumps({"rival": asdict(rival), "job": asdict(job)} | turns)
    path = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [str(pythons[rival.place]), "-m", "bench.beside"],
        input=said,
        env=os.environ | {"PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"{rival.title} failed (code {done.returncode}): {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def table(runs: dict[str, list[Found]]) -> str:
    """The figures as Markdown: means of all turns, and the first one's standard error.

    The error takes turns for independent. Neighbours share a turn alone, and the host's pace, so it
    is rather too small.
    """
    by, waiting, lock = "the loop is slowed by", "waits for its core", "waits for the lock"
    head = ("loader", "workers", by, waiting, lock, "waits for batches", "images/s meanwhile")
    rows = []
    for name, found in runs.items():
        rival, workers = name.split()
        slower = [share for run in found for share in slowed(run)]
        error = stdev(slower) / sqrt(len(slower)) if len(slower) > 1 else inf
        waited = mean(share for run in found for share in run["waited"])
        blocked = mean(share for run in found for share in more_blocked(run))
        starved = mean(share for run in found for share in run["starved"])
        pace = mean(pace for run in found for pace in run["images_per_second"])
        shares = (f"{mean(slower):.1%} ± {error * 100:.1f}", f"{waited:.1%}", f"{blocked:.1%}")
        rows.append((one(rival).title, workers, *shares, f"{starved:.1%}", f"{pace:.0f}"))
    return page.table(head, rows)


def slowed(run: Found) -> list[float]:
    """By what share of its pace the loop is slower in each turn beside the loader."""
    around = map(mean, pairwise(run["alone"]))
    return [1 - beside / alone for beside, alone in zip(run["beside"], around, strict=True)]


def more_blocked(run: Found) -> list[float]:
    """What share of each turn beside the loader it stood still, but for batches, beyond alone."""
    around = map(mean, pairwise(run["blocked_alone"]))
    return [beside - alone for beside, alone in zip(run["blocked"], around, strict=True)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
