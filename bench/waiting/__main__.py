"""The command line of the bench."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stoker.demo.results import described, machine

from bench.command import Command
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
    command = Command(NAME)
    names = [scenario.name for scenario in SCENARIOS]
    command.add("--scenario", action="append", choices=names, help="only this; repeatable")
    arguments = command.parse(argv)
    outcomes = []
    for scenario in SCENARIOS:
        if scenario.name in (arguments.scenario or names):
            outcomes.append(tried(scenario, arguments.model))
            print(told(outcomes[-1]), file=sys.stderr, flush=True)
    runs = {outcome.scenario.name: raw(outcome) for outcome in outcomes}
    figures = f"{table(outcomes)}\n\n{described(machine())}."
    kept = command.keep(arguments, {"runs": runs}, figures)
    return kept if all(outcome.holds for outcome in outcomes) else 1


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
