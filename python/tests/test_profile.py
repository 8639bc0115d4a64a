"""The profile: each room takes the instructions that are expected, and what differs is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from bench.page import markers
from bench.profile import expected, model, results, rooms

ROOT = Path(__file__).parents[2]
MODEL = ROOT / ".setup/models/qwen3-vl"


@pytest.fixture(scope="module")
def counted() -> rooms.Works:
    """What each room takes now."""
    return rooms.count(rooms.build(), MODEL)


@pytest.fixture(scope="module")
def wanted() -> dict:
    return expected.read(expected.FILE)


def test_every_room_takes_the_instructions_that_are_expected_of_it(counted, wanted):
    differences = expected.differences(wanted, counted)
    assert not differences, "\n".join(differences)


def test_a_room_that_takes_a_tenth_more_or_less_is_found_out(counted, wanted):
    for factor in (1.1, 0.9):
        for name, work in counted.items():
            changed = counted | {name: work | {"instructions": work["instructions"] * factor}}
            first, *_, what_to_do = expected.differences(wanted, changed)
            assert first.startswith(f"{name}: ")
            assert "instructions an item, expected" in first
            assert "make profile-accept" in what_to_do


def test_the_counts_are_of_work_and_not_of_its_preparation(counted):
    # A megapixel is decoded in some ten instructions a pixel, and never in less than one.
    assert 1e6 < counted["image: decode"]["instructions"] < 1e8
    # 12,000 merges are read, and a million rows planned for, outside of what is counted.
    assert counted["text"]["instructions"] < 1e6
    assert counted["plan"]["instructions"] < 1e4
    assert counted["vision: u8, resized"]["instructions"] > counted["vision: u8"]["instructions"]


WANTED = {"made_with": {}, "works": {"a": dict.fromkeys(expected.COUNTS, 1000.0)}}


@pytest.fixture
def same_tools(monkeypatch):
    monkeypatch.setattr(expected, "tools", dict)


def found(**counts: float) -> dict:
    return {"a": dict.fromkeys(expected.COUNTS, 1000.0) | counts}


@pytest.mark.usefixtures("same_tools")
def test_differences_within_the_tolerance_are_none():
    for count in expected.COUNTS:
        for value in (951.0, 1000.0, 1049.0):
            assert expected.differences(WANTED, found(**{count: value})) == []
        for value, change in ((949.0, "-5.1%"), (1051.0, "+5.1%")):
            told, _ = expected.differences(WANTED, found(**{count: value}))
            assert change in told
            assert expected.COUNTS[count] in told


@pytest.mark.usefixtures("same_tools")
def test_where_nothing_is_allocated_an_allocation_is_found_out():
    wanted = copy.deepcopy(WANTED)
    wanted["works"]["a"]["allocations"] = 0.0
    assert expected.differences(wanted, found(allocations=0.5)) == []
    told, _ = expected.differences(wanted, found(allocations=2.0))
    assert told == "a: 2 allocations an item, expected 0"


@pytest.mark.usefixtures("same_tools")
def test_works_that_come_and_go_are_told():
    told = expected.differences(WANTED, {"b": found()["a"]})
    assert told[:2] == ["a is not counted any more", "b is new"]


def test_other_tools_are_told_where_something_differs(monkeypatch):
    monkeypatch.setattr(expected, "tools", lambda: {"rustc": "rustc 2", "valgrind": "valgrind 1"})
    wanted = WANTED | {"made_with": {"rustc": "rustc 1", "valgrind": "valgrind 1"}}
    assert expected.differences(wanted, found()) == []
    _, tools, _ = expected.differences(wanted, found(instructions=1.0))
    assert tools == "(counted with other tools: rustc 1 then, rustc 2 now)"


def test_what_is_found_becomes_what_is_expected(tmp_path: Path, counted):
    expected.write(tmp_path / "file.json", counted)
    assert expected.differences(expected.read(tmp_path / "file.json"), counted) == []


@pytest.mark.parametrize("as_strings", [True, False])
def test_a_cut_tokenizer_keeps_ids_without_gaps(as_strings):
    pairs = [["a", "b"], ["ab", "c"], ["b", "c"]]
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5}
    merges = [" ".join(pair) for pair in pairs] if as_strings else pairs
    whole = {"model": {"vocab": vocab, "merges": merges}, "added_tokens": [{"id": 6}, {"id": 7}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "MERGES", 2)
        model.cut(whole)
    assert whole["model"]["vocab"] == {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}
    assert whole["model"]["merges"] == merges[:2]
    assert whole["added_tokens"] == [{"id": 5}, {"id": 6}]


def test_figures_say_where_all_of_an_image_goes():
    names = [name.format(pixels=p) for name in results.STEPS.values() for p in results.PIXELS]
    work = {"instructions": 4e6, "nanoseconds": 1e6, "allocations": 3.0, "allocated_bytes": 4.0}
    works = {name: dict(work) for name in names}
    timed = {"works": works, "chain": dict.fromkeys(results.PIXELS, 1e7)}
    text = results.figures(works, timed, "a machine")
    # Eight steps of a millisecond, of ten.
    assert "| engine, files, memory | 2.00 ms | 20% | 2.00 ms | 20% | 2.00 ms | 20% |" in text
    assert "| all | 10.00 ms | 100.0% |" in text
    assert "| plan | 1.00 ms | 4,000,000 | 4.0 | 3.0 | 4 |" in text
    assert "Text takes 10.00% of" in text


def test_the_page_has_a_place_for_the_figures():
    page = (ROOT / "docs/profile.md").read_text()
    assert [page.count(marker) for marker in markers(results.NAME)] == [1, 1]
    assert json.loads(expected.FILE.read_text())["works"]
