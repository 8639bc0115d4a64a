"""The command line of the bench."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.demo.results import described, machine

from bench.page import PageError, write_between
from bench.waiting import __doc__ as about
from bench.waiting.run import tried
from bench.waiting.scenarios import SCENARIOS

if TYPE_CHECKING:
    from bench.waiting.run import Found, Outcome

NAME = "waiting"
"""Of the markers in the page."""


def main(argv: list[str]) -> int:
    """Runs the scenarios.

    Returns:
        The exit code: 0, or 1 if a report was wrong or its advice did not help.
    """
    parser = argparse.ArgumentParser(
        prog="python -m bench.waiting", description=about.partition("\n")[0]
    )
    add = parser.add_argument
    add("--model", type=Path, default=Path(".setup/models/qwen3-vl"))
    add("--out", type=Path, default=Path("target"))
    add("--docs", type=Path, help="page that the figures go into")
    names = [scenario.name for scenario in SCENARIOS]
    add("--scenario", action="append", choices=names, help="only this; repeatable")
    arguments = parser.parse_args(argv)
    outcomes = []
    for scenario in SCENARIOS:
        if scenario.name in (arguments.scenario or names):
            outcomes.append(tried(scenario, arguments.model))
            print(told(outcomes[-1]), file=sys.stderr, flush=True)
    runs = {outcome.scenario.name: raw(outcome) for outcome in outcomes}
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine(), "runs": runs}
    (arguments.out / f"{NAME}.json").write_text(json.dumps(found, indent=1) + "\n")
    figures = f"{table(outcomes)}\n\n{described(machine())}."
    print(figures)
    if arguments.docs:
        try:
            write_between(arguments.docs, NAME, figures)
        except PageError as error:
            print(f"waiting: {error}", file=sys.stderr)
            return 1
    return 0 if all(outcome.holds for outcome in outcomes) else 1


def told(outcome: Outcome) -> str:
    """What came of a scenario, in a line."""
    after = "" if outcome.after is None else f" -> {share(outcome.after)}"
    verdict = "" if outcome.holds else " WRONG"
    name, found = outcome.scenario.name, outcome.before
    return f"{name}: {found.limit}, {share(found)}{after}{verdict}\n  {found.words}"


def raw(outcome: Outcome) -> dict[str, dict[str, object] | None]:
    """All that was found."""
    after = outcome.after
    return {"before": outcome.before._asdict(), "after": after and after._asdict()}


def table(outcomes: list[Outcome]) -> str:
    """The figures as Markdown."""
    rows = [
        ["bottleneck", "provoked by", "limit named", "what was done", "wait for a batch", "then"],
        ["---", "---", "---", "---", "---:", "---:"],
    ]
    for scenario, before, after in outcomes:
        named = f"`{before.limit}`"
        if before.limit != scenario.limit:
            named += f" (wrong: `{scenario.limit}`)"
        shares = [share(before), "" if after is None else share(after)]
        rows.append([scenario.name, scenario.provoked, named, scenario.followed, *shares])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def share(found: Found) -> str:
    """A wait as people read it."""
    return f"{found.blocked_seconds * 1e3:.1f} ms ({found.wait:.0%})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
