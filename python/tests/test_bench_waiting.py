"""Bottlenecks that need Python are named, and advice helps; and the bench that tries all."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import overhead
from bench.page import markers
from bench.profile.rooms import RoomsError
from bench.waiting import __main__ as bench
from bench.waiting import run
from bench.waiting.scenarios import SCENARIOS

MODEL = Path(__file__).parents[2] / ".setup/models/qwen3-vl"


def scenario(name, batches=24):
    """A short form of it."""
    (found,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    before, after = replace(found.before, batches=batches), found.after
    return replace(found, before=before, after=after and replace(after, batches=batches))


@pytest.fixture(autouse=True)
def _root(monkeypatch):
    """Stores are started from there."""
    monkeypatch.chdir(MODEL.parents[2])


def held(tried):
    """The first outcome of three that holds: other programs make a trainer wait as well."""
    for _ in range(3):
        outcome = run.tried(tried, MODEL)
        if outcome.holds:
            return outcome
    pytest.fail(bench.told(outcome))


def test_a_thread_that_keeps_the_gil_is_named_and_waits_end_without_it():
    outcome = held(scenario("hand-over", batches=100))
    advice = outcome.before.report["advice"]
    making = ("bytes_blocked_seconds", "memory_blocked_seconds", "pixels_blocked_seconds")
    assert advice["hand_over_blocked_seconds"] > sum(advice[name] for name in making)


def test_the_rank_that_holds_up_the_others_is_named_and_its_advice_ends_that():
    outcome = held(scenario("one slow rank"))
    assert "rank 1 holds up the other 1" in outcome.before.words
    assert outcome.after.step_seconds < outcome.before.step_seconds


def test_a_run_writes_its_table_into_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench, "SCENARIOS", (scenario("store latency", batches=12),))
    page = tmp_path / "page.md"
    page.write_text("\n".join(markers(bench.NAME)) + "\n")
    places = ["--model", str(MODEL), "--out", str(tmp_path), "--docs", str(page)]
    assert bench.main(["--scenario", "store latency", *places]) == 0
    found = json.loads((tmp_path / "waiting.json").read_text())["runs"]["store latency"]
    assert found["before"]["limit"] == "latency"
    assert found["after"]["wait"] < found["before"]["wait"]
    table = capsys.readouterr().out
    assert "| store latency |" in table
    assert table.strip() in page.read_text()


def test_a_wrong_limit_and_advice_that_does_not_help_are_told():
    found = run.Found(0.4, "latency", "raise engine.prefetch", 0.1, {})
    (latency,) = (scenario for scenario in SCENARIOS if scenario.limit == "latency")
    assert run.Outcome(latency, found, found._replace(wait=0.1)).holds
    assert not run.Outcome(latency, found, found._replace(wait=0.3)).holds
    wrong = run.Outcome(latency, found._replace(limit="memory"), found._replace(wait=0.1))
    assert not wrong.holds
    assert "`memory` (wrong: `latency`)" in bench.table([wrong])
    assert not run.Outcome(latency, found._replace(words=""), found._replace(wait=0.1)).holds


def test_the_cost_of_metrics_is_the_middle_of_ratios_of_pairs(tmp_path):
    # A turn takes 30 and 10 µs by turns without metrics, and 1 % more with them.
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nturns = dict(on=0, off=0)\n"
        "for line in sys.stdin:\n"
        "    turns[line.strip()] += 1\n"
        "    odd = 3 if turns[line.strip()] % 2 else 1\n"
        "    print((10100 if line == 'on\\n' else 10000) * odd, flush=True)\n"
    )
    program.chmod(0o755)
    work = overhead.Work("photos", 1, 2, batches=2)
    found = overhead.paired(program, tmp_path, work, pairs=10)
    assert found == ("photos", 10000, pytest.approx(0.01), *[pytest.approx(0.01)] * 2, 10)
    assert "| photos | 0.01 ms | +1.00% | +1.00% to +1.00% | 10 |" in overhead.figures_of_turns(
        [found]
    )


def test_a_program_that_ends_early_is_named(tmp_path):
    with overhead.started(Path("/bin/false"), tmp_path, overhead.WORKS[0]) as spent:
        time.sleep(0.2)  # it has ended before it is asked
        with pytest.raises(RoomsError, match="false ended with 1"):
            spent("on")


def test_the_middle_is_within_its_bounds_in_95_of_100_draws():
    draw = random.Random(3)
    within = 0
    for _ in range(1000):
        low, high = overhead.bounds([draw.gauss(1.0, 0.1) for _ in range(40)])
        within += low <= 1.0 <= high
    assert 940 <= within <= 985


def test_the_cost_of_metrics_is_what_happens_times_what_it_takes():
    def run_of(batch, times):
        events = [{"event": "a task", "times": times, "nanoseconds": 100.0}]
        own = 100.0 * times
        numbers = {"metrics_nanoseconds": own, "batch_nanoseconds": 1e6, "share": own / 1e6}
        return {"batch": batch, "events": events} | numbers

    table = overhead.figures_of_counted([run_of("photos", 20.0), run_of("icons", 30.0)])
    assert "| a task | 100 ns | 20 | 30 |" in table
    assert "| share |  | 0.20% | 0.30% |" in table
