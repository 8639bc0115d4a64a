"""The bench of faults: it runs, all kinds of faults happen, and the figures go into a page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import faults
from bench.page import markers

MODEL = Path(__file__).parents[2] / ".setup/models/qwen3-vl"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of no size, and faults that are sure to happen."""
    monkeypatch.setattr(faults, "PIXELS", (40_000, 60_000))
    monkeypatch.setattr(faults, "SHARE", 0.3)
    monkeypatch.chdir(MODEL.parents[2])


@pytest.mark.usefixtures("small")
def test_each_way_is_measured_beside_the_clean_run(tmp_path: Path, capsys):
    page = tmp_path / "page.md"
    page.write_text("\n".join(markers(faults.NAME)) + "\n")
    before = dict(os.environ)
    few = ["--rounds", "1", "--samples", "16", "--epochs", "2", "--profile", "none"]
    ways = ["reset", "expired token", "another range", "range ignored"]
    only = [word for way in ways for word in ("--only", way)]
    places = ["--model", str(MODEL), "--out", str(tmp_path), "--docs", str(page)]
    assert faults.main([*few, *only, *places]) == 0
    assert dict(os.environ) == before
    runs = json.loads((tmp_path / "faults.json").read_text())["runs"]
    assert list(runs) == [faults.CLEAN, *ways[:2], faults.CLEAN_ARCHIVE, *ways[2:]]
    for way in ways:
        ((clean,), (run,)) = runs[faults.clean_of(way)], runs[way]
        assert (clean["faults"], clean["retries"]) == (0, 0)
        assert 0 < run["faults"] <= run["retries"]
        assert run["requests"] == clean["requests"] + run["retries"]
    table = capsys.readouterr().out
    assert "| expired token |" in table
    assert table.strip() in page.read_text()


def test_each_kind_of_fault_is_one_that_the_server_knows():
    for way in [*faults.KINDS, faults.TOGETHER, *faults.OF_RANGES]:
        script = faults.script(way, 1)
        assert sum(rule["share"] for rule in script["rules"]) == pytest.approx(faults.SHARE)
        faults.S3Server(faults=script).close()
    assert faults.script(faults.CLEAN, 1) is None
