"""What a loader makes of more workers, and of working further ahead: one knob at a time.

Nothing of this is for the user to set: the table shows that what is chosen by itself comes near the
best there is. Writes a table to stdout, and `depths.json`.

    .venv/bin/python -m bench.depths
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from stoker.demo import at_least

from bench.command import Command
from bench.speed.job import Times
from bench.speed.rivals import Rival, named
from bench.speed.runner import Nurseries, Outcome, Plan, run
from bench.speed.scenarios import MEGAPIXEL, Scenario

NAME = "depths"
"""Of the markers in the page."""
STORES = ("hot", "standard")
CHOSEN = "by itself"
KNOBS = {"workers": (1, 2, 3, 4), "prefetch": (0, 1, 2, 4, 8, 16, 32, 64, 128)}


def main(argv: list[str]) -> int:
    """Measures."""
    command = Command(NAME)
    command.add("--rounds", type=at_least(1), default=3)
    command.add("--seconds", type=float, default=4.0, help="that a run is measured")
    command.add("--store", action="append", choices=STORES, help="only this; repeatable")
    command.add("--samples", type=at_least(8), default=256)
    arguments = command.parse(argv)
    rivals, outcomes = ways(), []
    with tempfile.TemporaryDirectory(prefix="stoker-") as scratch:
        times = Times(warm_up=arguments.seconds / 4, pace=arguments.seconds, trainer=0.0)
        cores = os.cpu_count() or 1
        plan = Plan(arguments.rounds, times, 0, arguments.model, Path(scratch), cores)
        pythons = {"project": Path(sys.executable)}
        nurseries = Nurseries(pythons, arguments.out / "depths.log")
        try:
            for profile in arguments.store or STORES:
                scenario = Scenario(
                    profile, f"photos, {profile}", MEGAPIXEL, arguments.samples, 8, profile
                )
                outcomes.append(run(scenario, rivals, plan, nurseries, tell))
        finally:
            nurseries.close()
    runs = {outcome.scenario.name: outcome.runs for outcome in outcomes}
    failed = {outcome.scenario.name: outcome.failed for outcome in outcomes}
    kept = command.keep(arguments, {"runs": runs, "failed": failed}, tables(outcomes))
    return 1 if any(failed.values()) else kept


def tell(words: str) -> None:
    """Says what is done next."""
    print(words, file=sys.stderr, flush=True)


def ways() -> list[Rival]:
    """As it comes, and with each value of each knob."""
    plain = named("stoker-u8")

    def way(name: str, engine: dict[str, int]) -> Rival:
        return replace(plain, name=name, title=name, options=plain.options | {"engine": engine})

    return [
        way(CHOSEN, {}),
        *(
            way(f"{knob} {value}", {knob: value})
            for knob, values in KNOBS.items()
            for value in values
        ),
    ]


def paces(outcome: Outcome) -> dict[str, float]:
    """Images per second of each way: medians."""
    return {
        name: median(run["images_per_second"] for run in runs)
        for name, runs in outcome.runs.items()
    }


def tables(outcomes: list[Outcome]) -> str:
    """The figures as Markdown: images per second, and their share of the best of their knob."""
    parts = []
    for knob, values in KNOBS.items():
        names = [(str(value), f"{knob} {value}") for value in values] + [(CHOSEN, CHOSEN)]
        rows = [[f"{knob}", *(outcome.scenario.words for outcome in outcomes)]]
        rows.append(["---", *["---:"] * len(outcomes)])
        for shown, name in names:
            rows.append(
                [
                    shown,
                    *(cell(paces(outcome), name, [n for _, n in names]) for outcome in outcomes),
                ]
            )
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def cell(found: dict[str, float], name: str, beside: list[str]) -> str:
    """A pace, and its share of the best one in its column."""
    if name not in found:
        return "failed"
    best = max(found[other] for other in beside if other in found)
    return f"{found[name]:.0f} images/s ({found[name] / best:.0%})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
