"""The bench of `stoker size`: what it says of a trainer is near what that trainer waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import sizing
from bench.page import markers

ROOT = Path(__file__).parents[2]
NEAR = 0.3
"""A few batches beside other work tell no more; the bench itself is stricter."""


def test_a_forecast_is_near_what_a_trainer_waits(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    page.write_text("\n".join(markers(sizing.NAME)) + "\n")
    few = ["--scenario", "latency", "--scenario", "network", "--samples", "32"]
    quick = ["--seconds", "1.5", "--measure", "1.5", "--rounds", "1"]
    sizing.main([*few, *quick, "--out", str(tmp_path), "--docs", str(page)])
    runs = {
        run["scenario"]["name"]: run
        for run in json.loads((tmp_path / "sizing.json").read_text())["runs"]
    }
    assert {name: run["limit"] for name, run in runs.items()} == {
        "latency": "latency",
        "network": "bandwidth",
    }
    for run in runs.values():
        assert run["said"] == pytest.approx(run["seen"], abs=NEAR)
        assert run["said"] > sizing.NO_WAIT
    assert capsys.readouterr().out.strip() in page.read_text()


def test_a_step_goes_by_the_floor_of_what_is_to_be_the_limit():
    floors = [["trainer", 0.9], ["cores", 0.4], ["bandwidth", 0.2], ["bandwidth", 0.1]]
    assert sizing.floor(floors, "bandwidth") == 0.2  # computed, and as it was measured
    assert sizing.floor(floors, "trainer") == 0.4
    assert sizing.floor(floors, "memory") == 0.4


def test_no_wait_is_no_wait_and_a_wrong_forecast_is_marked():
    assert sizing.off_by(0.0, 0.01) == 0.0
    assert sizing.off_by(0.55, 0.5) == pytest.approx(0.1)
    assert sizing.off_by(0.03, 0.0) > sizing.WITHIN
    run = {"said": 0.55, "seen": 0.5, "right": True}
    assert sizing.marked(run) == "+10%"
    assert sizing.marked(run | {"said": 0.3, "right": False}) == "-40% **"
    assert sizing.marked(run | {"said": 0.0, "seen": 0.01}) == "nothing"


def test_no_two_runs_have_the_same_luck():
    seeds = [seed for number in range(3) for seed in sizing.Turn(0.1, number).seeds()]
    assert len(set(seeds)) == len(seeds)
