"""The bench: the same batches from stoker and from every rival, in one run.

Scenarios say what is loaded, rivals say how; the runs of all rivals are interleaved, and medians
are taken. Writes `bench.json` (medians), `bench-raw.json` (every run), and with `--docs` the tables
and a plot into a page.

    .venv/bin/python -m bench.speed
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.speed.rivals import Rival
    from bench.speed.runner import Outcome
    from bench.speed.scenarios import Scenario

CORES = 2
"""What the trainer, a loader with all its processes, and the store have together."""
WARM_UP_SECONDS, PACE_SECONDS, TRAINER_SECONDS = 1.0, 2.5, 1.25
QUICK = (24, (40_000, 60_000), 4)
"""Samples, pixels of an image and samples of a batch in a quick run."""
QUICK_SECONDS = 0.2


def main(argv: list[str]) -> int:
    """Runs the bench.

    Returns:
        The exit code: 0, 1 if nothing could be measured or the page has no place, 2 for wrong
        arguments, 130 after Ctrl-C. A rival that can't be run, and a figure that is not what it is
        to be, are told in the table.
    """
    arguments = parse(argv)
    from stoker.demo.store import DemoError

    from bench.page import PageError

    settle()
    try:
        return run(arguments)
    except (DemoError, PageError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted", file=sys.stderr)
        return 130


def parse(argv: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    from stoker.demo import at_least

    from bench.speed.rivals import RIVALS
    from bench.speed.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(
        prog="python -m bench.speed",
        description="The same batches from stoker and from every rival, on two cores.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    scenarios, rivals = ([one.name for one in all_] for all_ in (SCENARIOS, RIVALS))
    add("--scenario", action="append", choices=scenarios, help="only this one; may be repeated")
    add("--adapter", action="append", choices=rivals, help="only this one; may be repeated")
    add("--every", action="store_true", help="all rivals in all scenarios (about an hour)")
    add("--rounds", type=at_least(1), default=3, help="runs of each rival")
    add("--quick", action="store_true", help="tiny data and times: shows that it works, no more")
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"), help="folder of the model")
    add("--out", type=Path, default=Path("target"), help="where bench.json goes")
    add("--docs", type=Path, help="a page with markers, between which the figures are written too")
    add("--seed", type=int, default=0, help="chooses the data and the latencies")
    add(
        "--rivals",
        type=Path,
        default=Path(".setup/rivals/bin/python"),
        help="Python of the virtual environment that the rivals are in",
    )
    return parser.parse_args(argv)


def settle() -> None:
    """Gives all runs the same two cores, and processes to fork from: without threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ |= {
        "TOKENIZERS_PARALLELISM": "false",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def run(arguments: argparse.Namespace) -> int:
    """Runs the scenarios, writes what was found."""
    from stoker.demo import check_model, tell

    from bench.speed import runner
    from bench.speed.job import Times
    from bench.speed.page import write
    from bench.speed.results import claims

    check_model(arguments.model)
    arguments.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    times = Times(WARM_UP_SECONDS, PACE_SECONDS, TRAINER_SECONDS)
    if arguments.quick:
        times = Times(0.0, QUICK_SECONDS, QUICK_SECONDS)
    pythons = {"project": Path(sys.executable), "rivals": arguments.rivals.absolute()}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        cores = len(os.sched_getaffinity(0))
        model, rounds = arguments.model.resolve(), arguments.rounds
        plan = runner.Plan(rounds, times, arguments.seed, model, Path(scratch), cores)
        nurseries = runner.Nurseries(pythons, arguments.out.absolute() / "bench-stderr.txt")
        try:
            for scenario, rivals in chosen(arguments):
                outcomes.append(runner.run(scenario, rivals, plan, nurseries, tell))
        finally:
            nurseries.close()
    found = document(arguments, outcomes, time.monotonic() - began)
    keep(arguments.out, outcomes, found)
    for outcome in outcomes:
        if outcome.scenario.name == "photos":
            print("\n".join(map(str, claims(outcome))))
    if arguments.docs:
        write(arguments.docs, outcomes, found)
        tell(f"written: {arguments.docs}")
    return 0 if all(outcome.runs for outcome in outcomes) else 1


def chosen(arguments: argparse.Namespace) -> list[tuple[Scenario, list[Rival]]]:
    """The scenarios that were asked for, and who is run in each."""
    from bench.speed.rivals import RIVALS
    from bench.speed.scenarios import SCENARIOS

    found = []
    for scenario in SCENARIOS:
        if arguments.scenario and scenario.name not in arguments.scenario:
            continue
        everyone = arguments.every or not scenario.adapters
        names = [rival.name for rival in RIVALS] if everyone else scenario.adapters
        names = arguments.adapter or names
        data = scenario.smaller(*QUICK) if arguments.quick else scenario
        found.append((data, [rival for rival in RIVALS if rival.name in names]))
    return found


def document(
    arguments: argparse.Namespace, outcomes: list[Outcome], seconds: float
) -> dict[str, Any]:
    """What `bench-raw.json` holds."""
    from stoker.demo.results import machine

    from bench.speed.results import claims

    return {
        "scenarios": {
            outcome.scenario.name: {
                "words": outcome.scenario.words,
                "samples": outcome.data.samples,
                "bytes": outcome.data.bytes,
                "pixels": outcome.data.pixels,
                "step_seconds": outcome.step_seconds,
                "runs": outcome.runs,
                "failed": outcome.failed,
                "claims": [vars(claim) for claim in claims(outcome)],
            }
            for outcome in outcomes
        },
        "settings": {name: getattr(arguments, name) for name in ("rounds", "seed", "quick")},
        "versions": {name: metadata.version(name) for name in ("stoker", "torch", "transformers")},
        "machine": machine(),
        "seconds": seconds,
    }


def keep(out: Path, outcomes: list[Outcome], found: dict[str, Any]) -> None:
    """Writes the files for programs."""
    from stoker.demo import tell

    from bench.speed.results import summary

    for name, content in (("bench.json", summary(outcomes)), ("bench-raw.json", found)):
        (out / name).write_text(json.dumps(content, indent=2) + "\n")
        tell(f"written: {out / name}")
