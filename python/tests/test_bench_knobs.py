"""The benches of depths and of the neighbour: they run, and say what they found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from stoker.demo.store import DemoError

from bench import depths, neighbour
from bench.page import markers

MODEL = Path(__file__).parents[2] / ".setup/models/qwen3-vl"
PIXELS = (40_000, 60_000)
"""Of the images, from and to."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few ways, and images of no size."""
    monkeypatch.setattr(depths, "KNOBS", {"workers": (1,), "prefetch": (0,)})
    monkeypatch.setattr(depths, "MEGAPIXEL", PIXELS)
    tiny = replace(neighbour.SCENARIO, pixels=PIXELS, samples=8)
    monkeypatch.setattr(neighbour, "SCENARIO", tiny)
    monkeypatch.chdir(MODEL.parents[2])


@pytest.mark.usefixtures("small")
def test_each_depth_has_a_pace_and_its_share_of_the_best(tmp_path: Path, capsys):
    page = tmp_path / "page.md"
    page.write_text("\n".join(markers(depths.NAME)) + "\n")
    few = ["--rounds", "1", "--seconds", "0.2", "--store", "hot", "--samples", "16"]
    places = ["--model", str(MODEL), "--out", str(tmp_path), "--docs", str(page)]
    assert depths.main([*few, *places]) == 0
    found = json.loads((tmp_path / "depths.json").read_text())
    assert found["failed"] == {"hot": {}}
    assert set(found["runs"]["hot"]) == {"by itself", "workers 1", "prefetch 0"}
    table = capsys.readouterr().out
    assert table.count("(100%)") >= 2, "each knob has a best value"
    assert table.strip() in page.read_text()


@pytest.mark.usefixtures("small")
def test_the_neighbour_is_measured_alone_and_beside_a_loader(tmp_path: Path, capsys):
    few = ["--rounds", "1", "--pairs", "2", "--seconds", "0.2", "--rival", "stoker-u8"]
    assert neighbour.main([*few, "--model", str(MODEL), "--out", str(tmp_path)]) == 0
    runs = json.loads((tmp_path / "neighbour.json").read_text())["runs"]
    assert {name.split()[0] for name in runs} == {"stoker-u8"}
    for (run,) in runs.values():
        assert {turns: len(found) for turns, found in run.items()} == {
            "alone": 3,
            "beside": 2,
            "waited": 2,
            "images_per_second": 2,
        }
        assert all(0 <= share < 1 for share in run.pop("waited"))
        assert all(found > 0 for turns in run.values() for found in turns)
    assert "| stoker, u8 |" in capsys.readouterr().out


def test_a_slower_loop_is_shown_by_how_much():
    # The machine becomes slower meanwhile, and the loop with it.
    run = {"alone": [120.0, 80.0], "beside": [75.0], "waited": [0.1], "images_per_second": [10.0]}
    row = "| SPDL | 1 | 25.0% | 25.0% to 25.0% | 10.0% | 10 |"
    assert row in neighbour.table({"spdl 1": [run]})


@pytest.mark.usefixtures("small")
def test_a_neighbour_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = neighbour.order
    monkeypatch.setattr(neighbour, "order", lambda *of: replace(right(*of), bucket="absent"))
    few = ["--rounds", "1", "--seconds", "0.2", "--rival", "stoker-u8", "--model", str(MODEL)]
    with pytest.raises(DemoError, match="stoker, u8 failed"):
        neighbour.main([*few, "--out", str(tmp_path)])
