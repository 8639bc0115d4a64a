"""Ranks and states of a `RayLoader` are those of a `Loader`."""

from __future__ import annotations

import copy
import json
from collections import deque

import pytest

pytest.importorskip("ray")

import stoker
from stoker.ray import RayLoader
from stoker.trainers import DataLoader
from torch import distributed
from trainer_runs import digests

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def recipe(recipe):
    """12 batches."""
    recipe["pack"]["batch-size"] = 2
    recipe["vision"]["pixels"] = "u8"
    return recipe


@pytest.fixture
def loader(recipe):
    with RayLoader(recipe, workers=1) as loader:
        yield loader


def sequences(loader) -> list[int]:
    return [batch.sequence for batch in loader]


def test_the_state_of_some_batches_ago_is_that_of_a_trainer_that_looks_ahead(loader, recipe):
    held = deque()
    for batch in loader:
        held.append(batch)
        if len(held) > 3:
            trained = held.popleft()
            assert loader.state_dict(batches_ago=3) == trained.state_dict()
    state = json.loads(json.dumps(loader.state_dict(batches_ago=2)))
    assert state["batches"] == 10
    with pytest.raises(ValueError, match="batches_ago=13: it counts batches that were handed over"):
        loader.state_dict(batches_ago=13)
    loader.load_state_dict(state)
    assert sequences(loader) == [10, 11]
    with stoker.Loader(recipe) as plain:
        plain.load_state_dict(state)
        assert sequences(plain) == [10, 11]


def test_after_its_end_was_seen_a_resumed_run_begins_anew_and_after_its_last_batch_it_ends(loader):
    assert len(sequences(loader)) == 12
    end, last = loader.state_dict(), loader.state_dict(batches_ago=0)
    assert end == last | {"ended": True}
    loader.load_state_dict(last)
    assert sequences(loader) == []
    assert sequences(loader) == list(range(12))
    loader.load_state_dict(end)
    assert loader.state_dict() == end
    assert sequences(loader) == list(range(12))


def test_trainers_take_it_as_they_take_a_loader(loader, recipe):
    with stoker.Loader(recipe) as plain:
        whole = [digests(batch.to("cpu")) for batch in plain]
    data = DataLoader(loader)
    assert len(data) == 12
    first = [digests(batch) for _, batch in zip(range(5), data, strict=False)]
    state = data.state_dict()
    assert first == whole[:5]
    assert [digests(batch) for batch in data] == whole[5:]
    data.load_state_dict(state)
    assert [digests(batch) for batch in data] == whole[5:]
    assert [digests(batch) for batch in data] == whole


def test_the_rank_is_that_in_the_group(recipe, tmp_path):
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with RayLoader(copy.deepcopy(recipe), group=distributed.group.WORLD, workers=1) as loader:
            assert (loader.rank, loader.world_size) == (0, 1)
        with pytest.raises(TypeError, match="group says rank and world_size"):
            RayLoader(recipe, group=distributed.group.WORLD, rank=0, world_size=1, workers=1)
    finally:
        distributed.destroy_process_group()
