"""What the metrics cost, which are always on: their share of the processor time of a batch.

Counts what a loader counts for a batch, and times each of these by itself, with another thread at
the same counters. Writes a table to stdout, and `overhead.json`; ends with 1 if they take more than
a hundredth of the time of a batch of photos.

    .venv/bin/python -m bench.overhead
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from stoker.demo.results import described, machine

from bench.command import Command
from bench.page import table
from bench.profile.rooms import FLAGS, ROOT, RoomsError, run

NAME = "overhead"
"""Of the markers in the page."""
PROGRAM = ROOT / "target/release/examples/overhead"
BUILD = "cargo build --release --workspace --exclude stoker-python --example overhead"
MOST = 0.01
"""Of the time of a batch of photos."""


def main(argv: list[str]) -> int:
    """Builds, measures, writes.

    Returns:
        The exit code: 0, or 1 if metrics take too much or nothing could be measured.
    """
    command = Command(NAME)
    arguments = command.parse(argv)
    try:
        run(BUILD.split(), cwd=ROOT, env=os.environ | FLAGS)
        found = json.loads(run([PROGRAM, arguments.model]))
    except RoomsError as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 1
    figures = f"{figures_of(found['runs'])}\n\n{described(machine())}."
    kept = command.keep(arguments, found, figures)
    return 1 if found["runs"][0]["share"] > MOST else kept


def figures_of(runs: list[dict[str, Any]]) -> str:
    """The figures as Markdown: of a batch, how often what happens and what it takes."""
    rows = [
        [
            event["event"],
            f"{event['nanoseconds']:.0f} ns",
            *(f"{other['times']:.0f}" for run in runs for other in _same(run, event)),
        ]
        for event in runs[0]["events"]
    ]
    times = [f"{run['metrics_nanoseconds'] / 1e3:.0f} µs" for run in runs]
    batches = [f"{run['batch_nanoseconds'] / 1e6:.2f} ms" for run in runs]
    shares = [f"{run['share']:.2%}" for run in runs]
    rows += [["all", "", *times], ["processor time of the batch", "", *batches]]
    rows += [["share", "", *shares]]
    return table(["event", "takes", *(f"8 {run['batch']}" for run in runs)], rows)


def _same(run: dict[str, Any], event: dict[str, Any]) -> list[dict[str, Any]]:
    return [other for other in run["events"] if other["event"] == event["event"]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
