"""Ranks beside each other: which one the others wait for."""

from __future__ import annotations

import pytest
import stoker
from stoker import ranks


def report(wall, blocked, words=None, batches=10):
    """Numbers of a rank whose steps take so long, and of them so long for their batches."""
    wait = {
        "batches": batches,
        "wall_seconds": wall * batches,
        "blocked_seconds": blocked * batches,
        "window_ratio": blocked / wall,
    }
    return {"wait": wait, "advice": words and {"words": words}}


def lately(wall, blocked, words=None):
    """The same, of the latest batches; before them nobody waited."""
    stages = {"batches": 5, "seconds": 5 * wall}
    return report(wall, blocked, words) | {"stages": stages}


@pytest.mark.parametrize("numbers", [report, lately])
def test_a_rank_that_waits_while_others_do_not_is_the_slow_one(numbers):
    quick = numbers(0.5, 0.005)
    found = ranks.compare([quick, quick, numbers(0.5, 0.2, "cores are the limit"), quick])
    assert (found.limit, found.rank) == ("slow-rank", 2)
    assert "rank 2 holds up the other 3" in str(found)
    assert "40.0%" in found.words
    assert "1.0% at most" in found.words
    assert found.words.endswith("on rank 2, cores are the limit")
    assert found.paces[2].trainer_seconds == pytest.approx(0.3)


def test_all_ranks_that_are_waited_for_are_named():
    quick, slow = report(0.5, 0.0), report(0.5, 0.2, "memory is the limit")
    found = ranks.compare([*([quick] * 8), *([slow] * 3), report(0.5, 0.21), quick, slow, quick])
    assert (found.limit, found.rank) == ("slow-rank", 11)
    assert found.words.startswith(
        "ranks 8 to 11, 13 hold up the other 10: they wait for their data 42.0% of their time at "
        "most, the others for theirs 0.0% at most"
    )


def test_ranks_that_wait_alike_have_one_reason():
    found = ranks.compare([report(0.5, 0.2), report(0.5, 0.22, "memory is the limit")])
    assert (found.limit, found.rank) == ("all-ranks", None)
    assert "40.0% to 44.0%" in found.words
    assert found.words.endswith("memory is the limit")


def test_without_waits_a_slow_trainer_shows_only_where_ranks_do_not_meet():
    found = ranks.compare([report(0.2, 0.001), report(0.3, 0.001)])
    assert (found.limit, found.rank) == ("slow-trainer", 1)
    assert "0.299 s a step" in found.words
    found = ranks.compare([report(0.3, 0.001), report(0.3, 0.002)])
    assert (found.limit, found.rank) == (None, None)
    assert "a loader can't see it" in found.words


def test_too_little_is_not_compared():
    alone = ranks.compare([report(0.3, 0.1), report(0.3, 0.1, batches=0)])
    assert (alone.limit, len(alone.paces)) == (None, 1)


def test_reports_are_gathered_through_torch_distributed(recipe, tmp_path):
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1
    )
    try:
        with stoker.Loader(recipe, rank=0, world_size=1) as loader:
            for _ in range(3):
                next(loader)
            mine = loader.report()
            (same,) = ranks.gathered(mine)
    finally:
        distributed.destroy_process_group()
    assert same == mine.as_dict()
    assert len(ranks.compare([mine, same]).paces) == 2
