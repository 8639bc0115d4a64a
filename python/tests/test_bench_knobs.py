"""The benches of depths and of the neighbour: they run, and say what they found."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from stoker.demo.store import DemoError

from bench import beside, controls, depths, neighbour
from bench.page import markers
from bench.processes import cpu_ticks, family, running

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            "blocked_alone": 3,
            "beside": 2,
            "waited": 2,
            "blocked": 2,
            "starved": 2,
            "images_per_second": 2,
        }
        for share in ("waited", "blocked", "blocked_alone", "starved"):
            assert all(0 <= found < 1 for found in run.pop(share))
        assert all(found > 0 for turns in run.values() for found in turns)
    assert "| stoker, u8 |" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_the_error_of_the_method_is_found_beside_no_loader(tmp_path: Path, capsys):
    few = ["--rounds", "1", "--pairs", "2", "--seconds", "0.2"]
    loaders = ["--rival", "nothing", "--rival", "spin"]
    places = ["--model", str(MODEL), "--out", str(tmp_path)]
    assert neighbour.main([*few, *loaders, *places]) == 0
    runs = json.loads((tmp_path / "neighbour.json").read_text())["runs"]
    assert list(runs) == ["nothing 0", "spin 0"]
    for (run,) in runs.values():
        assert run["images_per_second"] == [0.0, 0.0]
        assert len(run["alone"]) == 3
    assert "| nothing | 0 |" in capsys.readouterr().out


def test_a_process_counts_while_batches_are_taken_and_only_then():
    before = family(os.getpid())
    batches = controls.open(SimpleNamespace(options={"spins": True}))
    next(batches)
    (process,) = set(family(os.getpid())) - set(before)

    def used() -> int:
        return sum(cpu_ticks([process])[process])

    assert any(next(batches) and used() >= 3 for _ in range(200)), "it counts"
    quiet = (used(), time.sleep(4 * controls.SECONDS)) and used()
    time.sleep(4 * controls.SECONDS)
    assert used() - quiet <= 1, "it has made what it makes ahead, and stands still"
    batches.close()
    assert not running(process)


def test_a_process_that_ends_makes_no_more_batches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(controls, "WAIT", "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match=r"ended \(code 3\)"):
        next(controls.open(SimpleNamespace(options={})))


@pytest.mark.usefixtures("small")
def test_a_rival_without_its_environment_says_what_to_do(tmp_path: Path):
    absent = ["--rivals-python", str(tmp_path / "bin/python"), "--rival", "spdl"]
    with pytest.raises(DemoError, match=r"SPDL.* is missing: make bench"):
        neighbour.main([*absent, "--model", str(MODEL), "--out", str(tmp_path)])


def test_no_turn_counts_that_follows_a_pause(monkeypatch: pytest.MonkeyPatch):
    rested = True

    def pause(_seconds: float) -> None:
        nonlocal rested
        rested = True

    def launch(_seconds: float, _taking: beside.Taking | None = None) -> beside.Turn:
        nonlocal rested
        was_rested, rested = rested, False
        return beside.Turn(50 if was_rested else 100, took=1.0, waited=0.0, blocked=0.0)

    monkeypatch.setattr(beside, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    monkeypatch.setattr(beside, "launch", launch)
    monkeypatch.setattr(beside, "interval", lambda _batches: 0.1)
    found = beside.turns(repeat({"image_grid_thw": ()}), pairs=2, seconds=0.1)
    assert (found["alone"], found["beside"]) == ([100.0] * 3, [100.0] * 2)


def test_a_slower_loop_is_shown_by_how_much():
    # The machine becomes slower meanwhile, and the loop with it.
    first = {"alone": [120.0, 80.0, 120.0], "beside": [75.0, 85.0], "waited": [0.1, 0.2]}
    first |= {"blocked_alone": [0.0, 0.02, 0.0], "blocked": [0.04, 0.06]}
    first |= {"images_per_second": [10.0, 12.0], "starved": [0.0, 0.06]}
    second = {"alone": [50.0, 50.0], "beside": [40.0], "waited": [0.0], "images_per_second": [8.0]}
    second |= {"blocked_alone": [0.01, 0.01], "blocked": [0.01], "starved": [0.0]}
    row = "| SPDL | 1 | 20.0% ± 2.9 | 10.0% | 2.7% | 2.0% | 10 |"
    assert row in neighbour.table({"spdl 1": [first, second]})


def test_of_a_turn_it_is_told_apart_what_the_loop_ran_and_stood_still():
    asleep, usual = 0.2, sys.getswitchinterval()
    libc = ctypes.PyDLL(None)  # its calls keep the interpreter's lock

    def hold() -> None:  # as a loader would that does its work in Python
        time.sleep(0.1)
        # Who waits for the lock does not look again and again: each look of a busy machine's thread
        # would wait for a core.
        sys.setswitchinterval(10)
        libc.usleep(int(asleep * 1e6))
        sys.setswitchinterval(usual)

    beside.launch(0.01)  # torch is imported
    (holder := threading.Thread(target=hold)).start()
    turn = beside.launch(0.6)
    holder.join()
    assert turn.launches > 0
    assert asleep * 0.9 < turn.blocked < turn.took
    assert turn.waited + turn.blocked < turn.took


def test_what_the_loop_is_starved_makes_it_no_slower():
    each = 0.05

    def slow() -> Iterator[dict[str, tuple[int, int]]]:
        while True:
            time.sleep(each)
            yield {"image_grid_thw": (1, 2)}

    beside.launch(0.01)  # torch is imported
    batches = slow()
    turn = beside.launch(1.0, beside.Taking(batches, beside.interval(batches)))
    assert turn.images >= 2 * 2
    assert turn.starved >= turn.images / 2 * each * 0.9
    assert turn.starved + turn.waited + turn.blocked < turn.took
    assert turn.pace() == turn.launches / (turn.took - turn.starved)


@pytest.mark.usefixtures("small")
def test_a_neighbour_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = neighbour.order
    monkeypatch.setattr(neighbour, "order", lambda *of: replace(right(*of), bucket="absent"))
    few = ["--rounds", "1", "--seconds", "0.2", "--rival", "stoker-u8", "--model", str(MODEL)]
    with pytest.raises(DemoError, match="stoker, u8 failed"):
        neighbour.main([*few, "--out", str(tmp_path)])
