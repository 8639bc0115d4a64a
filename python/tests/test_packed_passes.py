"""Packed runs that end: lengths that are told or refused, states, both halves, sizes sent on."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import pytest
import stoker
from conftest import ROWS
from stoker._native import Front, Maker


@pytest.fixture
def packed(recipe, tmp_path):
    """Two epochs of 24 rows, a few a batch; sizes are kept in a folder of this test alone."""
    recipe["dataset"]["index-dir"] = str(tmp_path)
    recipe["vision"]["pixels"] = "u8"
    recipe["plan"] |= {"epochs": 2, "lanes": 8}
    recipe["pack"] = {"max-tokens": 300}
    return recipe


def content(batch) -> dict:
    arrays = {name: array.tobytes() for name, array in batch.numpy().items()}
    return {"samples": batch.samples, "mask": batch.sample_mask, **batch.scalars, **arrays}


def contents(loader) -> list[dict]:
    return [content(batch) for batch in loader]


def brought_in(maker):
    """Reads of the source so far."""
    return next(room.items for room in maker.report().rooms if room.room == "fetch")


def measure(recipe, tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    assert stoker._native.cli(["stoker", "index", "--sizes", str(tmp_path / "recipe.json")]) == 0


@pytest.mark.parametrize("kind", [stoker.Loader, Front])
def test_a_length_that_is_not_known_is_refused_in_words(packed, kind, tmp_path):
    loader = kind(packed, rank=0, world_size=1)
    with pytest.raises(TypeError, match=r"not known before all samples are measured .*--sizes"):
        len(loader)
    measure(packed, tmp_path)
    batches = len(loader)
    assert batches == len(list(stoker.Loader(packed)))
    assert len(kind(packed, rank=3, world_size=4)) == -(-batches // 4)
    with pytest.raises(TypeError, match=r"endless loader has no len\(\): set plan\.epochs"):
        len(kind(packed, rank=0, world_size=1, overrides={"plan.epochs": None}))


def test_a_length_is_known_once_the_run_was_gone_through(packed):
    loader = stoker.Loader(packed, rank=1, world_size=2)
    batches = list(loader)
    assert len(loader) == len(batches)
    assert contents(loader) == [content(batch) for batch in batches], "it begins anew"


@pytest.mark.parametrize("remainder", ["fill", "pad", "drop"])
def test_states_go_on_to_the_end_and_from_it(packed, remainder):
    packed["plan"]["remainder"] = remainder
    straight = contents(stoker.Loader(packed))
    first = stoker.Loader(packed, rank=1, world_size=2)
    states = [first.state_dict()]
    states += [first.state_dict() for _ in first]
    ended = first.state_dict()
    for step, state in enumerate(states):
        rest = []
        for rank in range(4):
            loader = stoker.Loader(packed, rank=rank, world_size=4)
            loader.load_state_dict(json.loads(json.dumps(state)))
            rest.append(contents(loader))
        seen = [batch for step in zip(*rest, strict=True) for batch in step]
        left = straight[2 * step :]
        assert seen[: len(left)] == left[: len(seen)], f"after {step} steps"
        whole = len(left) // 4 if remainder == "drop" else -(-len(left) // 4)
        assert len(seen) == 4 * whole
    again = stoker.Loader(packed)
    again.load_state_dict(ended)
    assert contents(again) == straight


def test_every_row_comes_once_for_an_evaluation(packed):
    packed["plan"] |= {"epochs": 1, "remainder": "pad"}
    steps = [contents(stoker.Loader(packed, rank=rank, world_size=8)) for rank in range(8)]
    assert len({len(of_rank) for of_rank in steps}) == 1
    seen = [batch for step in zip(*steps, strict=True) for batch in step]
    counted = [
        sample
        for batch in seen
        for sample, counts in zip(batch["samples"], batch["mask"], strict=False)
        if counts
    ]
    assert sorted(row for _, row in counted) == list(range(ROWS))


def test_batches_made_elsewhere_end_as_those_of_a_loader(packed):
    packed["plan"]["remainder"] = "drop"
    for index, of in [(0, 1), (7, 8)]:
        front, maker = Front(packed, rank=index, world_size=of), Maker(packed)
        expected = contents(stoker.Loader(packed, rank=index, world_size=of))
        seen = []
        while (sequence := front.sequence_at(0)) is not None:
            made = pickle.loads(pickle.dumps(maker.make(sequence, [], front.window())))
            batch = front.hand_over(made, blocked=0.0)
            if batch is not None:
                seen.append(content(batch))
        assert seen == expected
        assert len(front) == len(expected)
        # One far behind the end is nothing, and says where that is.
        nothing = maker.make(10_000, [], None)
        assert (list(nothing), nothing.samples, nothing.sample_mask) == ([], [], [])
        assert front.hand_over(nothing, blocked=0.0) is None
        with pytest.raises(stoker.BugError, match=r"10000 came where Some\(0\) comes next"):
            Front(packed, rank=0, world_size=1).hand_over(nothing, blocked=0.0)
        maker.close()


def there(recipe, tmp_path):
    """The recipe on another host, whose folder has the index alone."""
    [files] = Front(recipe).index_files()
    folder = tmp_path / "there"
    folder.mkdir()
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    return {**recipe, "dataset": recipe["dataset"] | {"index-dir": str(folder)}}


def test_sizes_that_one_host_knows_another_need_not_measure(packed, tmp_path):
    measure(packed, tmp_path)
    front, maker = Front(packed), Maker(there(packed, tmp_path))
    assert (front.sizes_known(), maker.sizes_known()) == ([ROWS], [0])
    row, parcels = 0, 0
    while row is not None:
        sizes, row = front.sizes(0, row, 100)
        assert len(sizes) <= 100
        maker.add_sizes(0, sizes)
        parcels += 1
    assert (maker.sizes_known(), parcels) == ([ROWS], 8)
    before = brought_in(maker)
    made = maker.make(0)
    reads = len(made.samples) + made.numpy()["image_grid_thw"].shape[0]
    assert brought_in(maker) - before == reads, "its own lines and images, and no more"
    with pytest.raises(ValueError, match="no dataset 1"):
        front.sizes(1, 0, 100)
    with pytest.raises(stoker.BugError, match="dataset 1, which is none"):
        maker.add_sizes(1, b"")
    maker.close()
    packed["pack"] = {"batch-size": 4}
    assert Front(packed).sizes_known() == [0], "nobody needs them"


def test_a_worker_is_told_the_sizes_that_its_host_lacks(packed, tmp_path):
    pytest.importorskip("ray")
    from stoker.ray import fleet, worker

    measure(packed, tmp_path)
    front = Front(packed)
    elsewhere = there(packed, tmp_path)
    there_first = worker.StokerWorker(Maker)
    there_first.lacks([[]])
    answer = there_first.open(elsewhere, {"engine.workers": 1})
    assert (answer.error, answer.sizes_known) == (None, [0])

    calls = []

    def add_sizes(*arguments):
        """Calls the worker as the fleet does, here and at once."""
        calls.append(arguments)
        there_first.add_sizes(*arguments)

    handle = SimpleNamespace(add_sizes=SimpleNamespace(remote=add_sizes))
    hired = fleet.Hired(0, None, None, "", handle, 0.0)
    keeper = object.__new__(fleet.Fleet)
    keeper._work = fleet.Work(Maker, packed, front, set())
    keeper._then = lambda hired, _, step: step(hired, None)
    ready = []
    keeper._ready = ready.append
    keeper._opened(hired, answer)
    assert ready == [hired]
    assert len(calls) == 1
    assert there_first.open(elsewhere, {"engine.workers": 1}).sizes_known == [ROWS]
    keeper._opened(hired, worker.Answer(0, None, [ROWS]))
    assert (len(ready), len(calls)) == (2, 1), "what it knows is not sent"
