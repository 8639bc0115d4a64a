"""Whether `stoker size` is right: what it says of a trainer, and what that trainer then waits.

In each scenario something else is the limit. `stoker size` measures a few seconds and says how
long a trainer will wait; then that trainer runs, asleep for its step, and its waits are added up.
Both are done in turns, each time with other luck in the store's latencies; a forecast is compared
with the run right after it, so that a machine that is slower for a while is slower for both, and
the turn that is off by the median counts.
Where the scenario has a narrow network, the measurement has none: what it will do is computed.
Writes a table to stdout, and `sizing.json`.

    .venv/bin/python -m bench.sizing --docs docs/guides/sizing.md
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import stoker
from stoker import _native
from stoker.demo import at_least
from stoker.demo.results import described, machine, percent

from bench.command import Command
from bench.page import table
from bench.processes import die_with_parent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

NAME = "sizing"
"""Of the markers in the page."""
BUCKET = "photos"
WITHIN = 0.15
"""Of the wait that was seen, the forecast may be off by so much."""
NO_WAIT = 0.02
"""A wait below this is none, in a forecast as in a report."""
PAYLOAD = 0.94
"""Share of a card's bits that `stoker size` takes for bytes of objects; the store limits these."""
WARM_SECONDS = 1.0


@dataclass(frozen=True)
class Scenario:
    """A trainer and what it loads with."""

    name: str
    limit: str
    """What is to be said to be the limit."""
    words: str
    pace: float
    """Seconds of a step, as a share of what the limit lets a batch take; of a slow trainer, of what
    all else does."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """By section, over what all scenarios have."""
    profile: str = "hot"
    """Latency of the store."""
    network: float | None = None
    """Mbit/s that the store's card brings; the rest of the world is as fast as it goes."""
    gpus: int = 1
    """Ranks on this machine, each in a process of its own."""


ONE_WORKER = {"engine": {"workers": 1}}
SCENARIOS = (
    Scenario("trainer", "trainer", "a slow trainer", 2.0),
    Scenario("cores", "cores", "one worker, a trainer twice as fast", 0.5, ONE_WORKER),
    Scenario("network", "bandwidth", "a card of 60 Mbit/s", 0.5, network=60.0),
    Scenario(
        "requests",
        "requests",
        "2 requests in flight",
        0.5,
        {"fetch": {"concurrency": 2}},
        "standard",
    ),
    Scenario(
        "latency",
        "latency",
        "one batch brought in ahead",
        0.5,
        {"engine": {"prefetch": 1}},
        "standard",
    ),
    Scenario("ranks", "cores", "two GPUs on this machine", 0.5, gpus=2),
    Scenario(
        "packed",
        "cores",
        "one worker, packed to 4096 tokens",
        0.4,
        ONE_WORKER | {"pack": {"batch-size": None, "max-tokens": 4096}},
    ),
)


def main(argv: list[str]) -> int:
    """Measures."""
    command = Command(NAME)
    command.add("--seconds", type=float, default=10.0, help="that a trainer runs, at least")
    command.add("--measure", type=float, default=10.0, help="seconds of each forecast")
    command.add("--rounds", type=at_least(1), default=5, help="forecasts and trainers, in turns")
    command.add("--samples", type=at_least(8), default=192)
    names = [scenario.name for scenario in SCENARIOS]
    command.add("--scenario", action="append", choices=names, help="only this; repeatable")
    arguments = command.parse(argv)
    runs = []
    with tempfile.TemporaryDirectory(prefix="stoker-") as scratch:
        write(Path(scratch) / BUCKET, arguments.samples)
        for scenario in SCENARIOS:
            if scenario.name in (arguments.scenario or names):
                runs.append(run(scenario, arguments, Path(scratch)))
                print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    figures = f"{rows(runs)}\n\n{described(machine())}."
    kept = command.keep(arguments, {"runs": runs}, figures)
    return kept if all(run["right"] for run in runs) else 1


def write(folder: Path, samples: int) -> None:
    """Writes chats about photos of half a megapixel."""
    data = _native.DemoDataset(seed=1, samples=samples, pixels=(400_000, 600_000))

    def put(number: int) -> None:
        key, content = data.object(number)
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(content)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(put, range(len(data))))


def run(scenario: Scenario, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """What is said of a scenario, and what becomes of it."""
    recipe = {
        "model": str(arguments.model.resolve()),
        "dataset": {"source": f"s3://{BUCKET}/train.jsonl", "index-dir": str(scratch / "index")},
        "pack": {"batch-size": 8},
        "vision": {"pixels": "bf16"},
        "engine": {"memory": "1GiB"},
    }
    for section, keys in scenario.recipe.items():
        recipe[section] = {
            key: value
            for key, value in (recipe.get(section, {}) | keys).items()
            if value is not None
        }
    with store(scratch, scenario.profile) as endpoint:
        said = forecast(recipe, Asked(scenario, endpoint, arguments.measure, scratch), 0.001)
        step = scenario.pace * floor(said["forecast"]["floors"], scenario.limit)
    rounds = [
        one_round(recipe, scenario, arguments, scratch, Turn(step, number))
        for number in range(arguments.rounds)
    ]
    limits = [said["forecast"]["limit"] for said, _ in rounds]
    limit = max(limits, key=limits.count)
    waits = [(said["forecast"]["wait"], seen) for said, seen in rounds]
    said, seen = sorted(waits, key=lambda wait: off_by(*wait))[len(waits) // 2]
    return {
        "scenario": asdict(scenario),
        "step_seconds": step,
        "said": said,
        "seen": seen,
        "off": sorted(off_by(*wait) for wait in waits),
        "limit": limit,
        "right": limit == scenario.limit and abs(off_by(said, seen)) <= WITHIN,
        "rounds": [{"seen": seen, "forecast": said} for said, seen in rounds],
    }


def off_by(said: float, seen: float) -> float:
    """By how much a forecast is off, of what was seen; not at all where nobody waits."""
    return 0.0 if max(said, seen) < NO_WAIT else (said - seen) / max(seen, NO_WAIT)


class Turn(NamedTuple):
    """One of those that are done in turns."""

    step: float
    number: int

    def seeds(self) -> tuple[int, int]:
        """Of the store's latencies: others each time, and for the trainer than for the forecast."""
        return 2 * self.number, 2 * self.number + 1


def one_round(
    recipe: dict[str, Any],
    scenario: Scenario,
    arguments: argparse.Namespace,
    scratch: Path,
    turn: Turn,
) -> tuple[dict[str, Any], float]:
    """What is said of a trainer, and how long it waits then."""
    first, second = ([f"--seed={seed}"] for seed in turn.seeds())
    with store(scratch, scenario.profile, *first) as endpoint:
        said = forecast(recipe, Asked(scenario, endpoint, arguments.measure, scratch), turn.step)
    limit = [] if scenario.network is None else ["--bandwidth", str(scenario.network)]
    with store(scratch, scenario.profile, *second, *limit) as endpoint:
        return said, trained(recipe, endpoint, scenario, turn.step, arguments.seconds)


def floor(floors: list[tuple[str, float]], limit: str) -> float:
    """Seconds that a batch takes at least for what is to be the limit, whatever else was slow."""
    others = [(name, seconds) for name, seconds in floors if name != "trainer"]
    own = [seconds for name, seconds in others if name == limit]
    return max(own or (seconds for _, seconds in others))


@contextmanager
def store(root: Path, profile: str, *more: str) -> Iterator[str]:
    """A store over the photos, in a process of its own; its endpoint."""
    command = [sys.executable, "-m", "stoker", "s3", "--root", str(root), "--profile", profile]
    server = subprocess.Popen(
        [*command, *more],
        env=os.environ | KEYS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,
    )
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


KEYS = {"AWS_ACCESS_KEY_ID": "stoker", "AWS_SECRET_ACCESS_KEY": "stoker-secret"}


def with_endpoint(recipe: dict[str, Any], endpoint: str) -> dict[str, Any]:
    """The recipe for one store."""
    return recipe | {"fetch": recipe.get("fetch", {}) | {"endpoint": endpoint}}


class Asked(NamedTuple):
    """What a forecast is asked for."""

    scenario: Scenario
    endpoint: str
    seconds: float
    """That it may measure."""
    scratch: Path


def forecast(recipe: dict[str, Any], asked: Asked, step: float) -> dict[str, Any]:
    """What `stoker size` says."""
    path = asked.scratch / "recipe.json"
    path.write_text(json.dumps(with_endpoint(recipe, asked.endpoint)))
    command = [sys.executable, "-m", "stoker", "size", str(path), "--json"]
    command += ["--gpus", str(asked.scenario.gpus), "--step-time", str(step)]
    command += ["--measure", str(asked.seconds)]
    if asked.scenario.network is not None:
        command += ["--network", str(asked.scenario.network / 1e3 / PAYLOAD)]
    said = subprocess.run(command, env=os.environ | KEYS, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


def trained(
    recipe: dict[str, Any], endpoint: str, scenario: Scenario, step: float, seconds: float
) -> float:
    """The share of its time that each of the trainers waits, in the mean."""
    job = {"recipe": with_endpoint(recipe, endpoint), "step": step, "seconds": seconds}
    command = [sys.executable, "-m", "bench.sizing", "--trainer"]
    with ExitStack() as stack:
        trainers = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=os.environ | KEYS,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(scenario.gpus)
        ]
        for rank, trainer in enumerate(trainers):
            trainer.stdin.write(json.dumps(job | {"rank": rank, "of": scenario.gpus}))
            trainer.stdin.close()
        waits = [json.loads(trainer.stdout.read()) for trainer in trainers]
    return sum(waits) / len(waits)


def train(job: dict[str, Any]) -> float:
    """A trainer that sleeps for its step; the share of its time that it waits in the long run."""
    engine = job["recipe"]["engine"] | {"local-world-size": job["of"]}
    recipe = job["recipe"] | {"engine": engine}
    step, waited, began, steps = job["step"], 0.0, None, 0
    with stoker.Loader(recipe, rank=job["rank"], world_size=job["of"]) as loader:
        opened = time.perf_counter()
        while True:
            asked = time.perf_counter()
            batch = next(loader)
            now = time.perf_counter()
            if began is not None:
                waited += now - asked
                steps += 1
            time.sleep(step)
            del batch
            done = time.perf_counter()
            # Until what was brought in before the trainer's first step is used up.
            if began is None and done - opened > WARM_SECONDS + job["seconds"] / 2:
                began = done
            elif began is not None and done - began > job["seconds"] and steps >= 16:
                return waited / (done - began)


def rows(runs: list[dict[str, Any]]) -> str:
    """The table."""
    head = ["scenario", "step", "limit said", "wait said", "wait seen", "off by", "in all turns"]
    return table(
        head,
        [
            [
                run["scenario"]["words"],
                f"{run['step_seconds'] * 1e3:.0f} ms",
                run["limit"],
                percent(run["said"]),
                percent(run["seen"]),
                marked(run),
                f"{run['off'][0]:+.0%} to {run['off'][-1]:+.0%}",
            ]
            for run in runs
        ],
    )


def marked(run: dict[str, Any]) -> str:
    """By how much a forecast is off, marked if that is too much or something else is the limit."""
    off = off_by(run["said"], run["seen"])
    nobody_waits = max(run["said"], run["seen"]) < NO_WAIT
    return ("nothing" if nobody_waits else f"{off:+.0%}") + ("" if run["right"] else " **")


if __name__ == "__main__":
    if sys.argv[1:] == ["--trainer"]:
        die_with_parent()
        print(json.dumps(train(json.loads(sys.stdin.read()))))
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
