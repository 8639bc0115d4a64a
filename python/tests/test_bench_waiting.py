"""Bottlenecks that need Python are named, and advice helps; and the bench that tries all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import overhead
from bench.page import markers
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


def test_a_thread_that_keeps_the_gil_is_named_and_waits_end_without_it():
    outcome = run.tried(scenario("hand-over", batches=100), MODEL)
    assert outcome.holds, bench.told(outcome)
    advice = outcome.before.report["advice"]
    making = ("bytes_blocked_seconds", "memory_blocked_seconds", "pixels_blocked_seconds")
    assert advice["hand_over_blocked_seconds"] > sum(advice[name] for name in making)


def test_the_rank_that_holds_up_the_others_is_named_and_its_advice_ends_that():
    outcome = run.tried(scenario("one slow rank"), MODEL)
    assert outcome.holds, bench.told(outcome)
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


def test_the_cost_of_metrics_is_what_happens_times_what_it_takes():
    def run_of(batch, times):
        events = [{"event": "a task", "times": times, "nanoseconds": 100.0}]
        own = 100.0 * times
        numbers = {"metrics_nanoseconds": own, "batch_nanoseconds": 1e6, "share": own / 1e6}
        return {"batch": batch, "events": events} | numbers

    table = overhead.figures_of([run_of("photos", 20.0), run_of("icons", 30.0)])
    assert "| a task | 100 ns | 20 | 30 |" in table
    assert "| share |  | 0.20% | 0.30% |" in table
