"""What the metrics cost, which are always on, in two ways.

*Turns*: the engine is built with the feature `metrics-switch`. While it is off, nothing is counted
but what goes up and down, and most clocks that are only looked at for metrics are not. One program
makes batches in turns with it on and off; compared is the processor time of all threads, those of
its store included.

*Counted*: how often a loader counts something for a batch, times what each of these takes by itself
with another thread at the same counters. That is a bound, and as good on a noisy machine.

Writes two tables to stdout, and `overhead.json`; ends with 1 if metrics surely take more than a
hundredth of the time of a batch of photos.

    .venv/bin/python -m bench.overhead
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.demo import at_least
from stoker.demo.results import described, machine

from bench.command import Command
from bench.page import table
from bench.profile.rooms import FLAGS, ROOT, RoomsError, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

NAME = "overhead"
"""Of the markers in the page."""
PROGRAM = ROOT / "target/release/examples/overhead"
BUILD = (
    "cargo build --release --workspace --exclude stoker-python --example overhead "
    "--features stoker-engine/metrics-switch"
)
MOST = 0.01
"""Of the time of a batch of photos."""
FIRST = 6
"""Pairs that don't count: memory and tables are fresh."""


EPOCH = 8
"""Batches. A turn is whole epochs: others would have more images or fewer."""


class Work(NamedTuple):
    """Eight samples a batch with images of so many pixels, and so many batches in a turn."""

    title: str
    least: int
    most: int
    batches: int


WORKS = (
    Work("photos of a megapixel", 990_000, 1_010_000, 1 * EPOCH),
    Work("images of 6,000 pixels", 5_000, 7_000, 12 * EPOCH),
)


class Found(NamedTuple):
    """Of one work: nanoseconds of a batch without metrics, and what they add to it."""

    title: str
    batch_nanoseconds: float
    share: float
    low: float
    high: float
    pairs: int


def main(argv: list[str]) -> int:
    """Builds, measures, writes.

    Returns:
        The exit code: 0, or 1 if metrics take too much or nothing could be measured.
    """
    command = Command(NAME)
    command.add("--pairs", type=at_least(6), default=100, help="of turns, for each of two works")
    arguments = command.parse(argv)
    try:
        run(BUILD.split(), cwd=ROOT, env=os.environ | FLAGS)
        turns = [paired(PROGRAM, arguments.model, work, arguments.pairs) for work in WORKS]
        counted = json.loads(run([PROGRAM, arguments.model]))["runs"]
    except RoomsError as error:
        print(f"overhead: {error}", file=sys.stderr)
        return 1
    parts = [figures_of_turns(turns), figures_of_counted(counted), f"{described(machine())}."]
    found = {"turns": [each._asdict() for each in turns], "counted": counted}
    kept = command.keep(arguments, found, "\n\n".join(parts))
    return 1 if turns[0].low > MOST or counted[0]["share"] > MOST else kept


def paired(program: Path, model: Path, work: Work, pairs: int) -> Found:
    """Has the program make batches with and without metrics, each of both first by turns."""
    ratios, without = [], []
    with started(program, model, work) as spent:
        for pair in range(-FIRST, pairs):
            words = ("on", "off") if pair % 2 else ("off", "on")
            turns = {word: spent(word) for word in words}
            if pair >= 0:
                ratios.append(turns["on"] / turns["off"])
                without.append(turns["off"] / work.batches)
    low, high = bounds(ratios)
    return Found(work.title, median(without), median(ratios) - 1, low - 1, high - 1, len(ratios))


@contextmanager
def started(program: Path, model: Path, work: Work) -> Iterator[Callable[[str], int]]:
    """A program that runs: what a turn takes with metrics `on` or `off`, in nanoseconds."""
    command = [program, model, str(work.least), str(work.most), str(work.batches)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def turn(metrics: str) -> int:
            with suppress(BrokenPipeError):
                process.stdin.write(f"{metrics}\n")
            if line := process.stdout.readline():
                return int(line)
            message = f"{program} ended with {process.wait()}"
            raise RoomsError(message)

        try:
            yield turn
        finally:
            # What it did not read any more is of no use.
            with suppress(BrokenPipeError):
                process.stdin.close()


def bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Between what the median is, with a probability of 95 %: two of the sorted ratios."""
    count = len(ratios)
    sides, below = 0.0, 0
    while (sides := sides + 2 * math.comb(count, below) / 2**count) <= 0.05:
        below += 1
    ordered = sorted(ratios)
    return ordered[max(below - 1, 0)], ordered[count - max(below, 1)]


def figures_of_turns(found: Sequence[Found]) -> str:
    """What was found in turns, as Markdown."""
    head = ["8 samples a batch", "without metrics", "with metrics", "95 % sure", "pairs"]
    rows = [
        [
            each.title,
            f"{each.batch_nanoseconds / 1e6:.2f} ms",
            f"{each.share:+.2%}",
            f"{each.low:+.2%} to {each.high:+.2%}",
            str(each.pairs),
        ]
        for each in found
    ]
    return table(head, rows)


def figures_of_counted(runs: list[dict[str, Any]]) -> str:
    """What was counted, as Markdown: of a batch, how often what happens and what it takes."""
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
