"""The bar of tqdm around a loader."""

from __future__ import annotations

import io
import re
import sys
from collections import deque
from itertools import islice
from types import SimpleNamespace

import pytest
import stoker


def drawn(loader, take=None, **options):
    """What a bar has shown: after each batch, as tqdm draws it."""
    screen = io.StringIO()
    shown = stoker.progress(loader, file=screen, mininterval=0, ascii=True, **options)
    batches = list(islice(shown, take))
    shown.close()
    return [line for line in screen.getvalue().split("\r") if line.strip()], batches


def test_the_bar_counts_the_batches_of_the_loader(quick):
    with stoker.Loader(quick) as loader:
        lines, batches = drawn(loader, desc="train")
    assert len(batches) == 6
    assert lines[0].startswith("train:   0%")
    assert " 0/6 " in lines[0]
    assert " 6/6 " in lines[-1]


def test_beside_it_stand_rates_and_the_wait(quick, monkeypatch):
    monkeypatch.setattr(stoker._progress, "EVERY", 0.0)
    with stoker.Loader(quick) as loader:
        lines, _ = drawn(loader)
        report = loader.report()
    numbers = re.search(r"samples/s=([\d.]+), tokens/s=(\d+), wait=(\d+)%", lines[-1])
    assert numbers, lines[-1]
    samples, tokens, wait = map(float, numbers.groups())
    # Both are over the same time; the first batch, of four samples, is not in it.
    assert 0 < samples < tokens
    assert tokens / samples < report.tokens / (report.samples - 4)
    assert wait == pytest.approx(report.wait.window_ratio * 100, abs=1)


def test_rates_are_those_of_the_latest_seconds(monkeypatch):
    wait = SimpleNamespace(window_ratio=None)
    now, shown = 0.0, []
    monkeypatch.setattr(stoker._progress.time, "monotonic", lambda: now)
    bar = SimpleNamespace(set_postfix=lambda told, **_: shown.append(told))
    looks = deque()
    for step in range(100):
        # One sample a second, and from then on four.
        now, samples = float(step), step + 3 * max(0, step - 80)
        report = SimpleNamespace(samples=samples, tokens=samples, wait=wait)
        stoker._progress._tell(bar, SimpleNamespace(report=lambda report=report: report), looks)
    assert [shown[at]["samples/s"] for at in (1, 79, -1)] == ["1.0", "1.0", "4.0"]
    assert len(looks) <= 12


def test_a_bar_goes_on_where_the_loader_does(quick):
    quick["plan"]["epochs"] = 2
    with stoker.Loader(quick) as loader:
        lines, _ = drawn(loader, take=3)
        assert " 0/12 " in lines[0]
        state = loader.state_dict()
        goes_on, rest = drawn(loader)
        assert " 3/12 " in goes_on[0]
        assert " 12/12 " in goes_on[-1]
        again, _ = drawn(loader, take=1)
        assert " 0/12 " in again[0], "it begins anew"
    # Three batches of one rank are one and a half of two ranks: five of six remain to each.
    for rank in range(2):
        with stoker.Loader(quick, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            lines, _ = drawn(loader, disable=False)
            assert " 1/6 " in lines[0]
            assert " 6/6 " in lines[-1]
    assert len(rest) == 9


def test_left_is_what_is_still_to_come(quick):
    with stoker.Loader(quick) as loader:
        seen = [loader.left()] + [loader.left() for _ in loader]
        assert seen == [6, 5, 4, 3, 2, 1, 0]
        assert loader.left() == 0
        iter(loader)
        assert loader.left() == 6
        loader.close()
        assert loader.left() == 6
    del quick["plan"]["epochs"]
    with stoker.Loader(quick) as loader, pytest.raises(TypeError, match="endless"):
        loader.left()


def test_an_endless_run_has_no_end_and_counts_from_where_it_is(quick):
    del quick["plan"]["epochs"]
    with stoker.Loader(quick) as loader:
        drawn(loader, take=7)
        lines, _ = drawn(loader, take=2)
    assert re.match(r"7batch \[", lines[0]), lines


def test_other_ranks_show_nothing_and_the_bar_is_not_asked_for_a_report(quick, monkeypatch):
    monkeypatch.setattr(stoker._progress, "_tell", None)
    with stoker.Loader(quick, rank=1, world_size=2) as loader:
        lines, batches = drawn(loader)
    assert (lines, len(batches)) == ([], 3)


def test_without_tqdm_it_says_what_to_do(quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with stoker.Loader(quick) as loader, pytest.raises(ImportError, match="pip install tqdm"):
        stoker.progress(loader)


def test_what_is_no_loader_is_refused():
    with pytest.raises(TypeError, match=r"stoker\.Loader or stoker\.ray\.RayLoader, not list"):
        stoker.progress([1, 2])


def test_stats_are_those_of_the_report(quick):
    with stoker.Loader(quick) as loader:
        list(loader)
    # Before it is closed, a worker may still be coming out of its last task.
    stats, later = loader.stats(), loader.report().stats()
    assert stats.keys() == later.keys()
    changed = {name for name in stats if stats[name] != later[name]}
    assert changed <= {"stoker/process_seconds"}, "what the rest of the process does goes on"
    assert loader.stats("data.")["data.samples"] == 24.0
