"""Packed batches by data workers, which are told where their window begins."""

from __future__ import annotations

from itertools import islice

import pytest

pytest.importorskip("ray")

import stoker
from stoker.ray import RayLoader

pytestmark = pytest.mark.usefixtures("cluster")


def content(batch) -> dict:
    arrays = {name: array.tobytes() for name, array in batch.numpy().items()}
    return {"samples": batch.samples, "state": batch.state_dict(), **batch.scalars, **arrays}


@pytest.mark.parametrize(("rank", "of", "remainder"), [(0, 1, "fill"), (3, 4, "pad")])
def test_a_packed_run_ends_as_that_of_a_loader(recipe, rank, of, remainder):
    recipe["vision"]["pixels"] = "u8"
    recipe["pack"] = {"max-tokens": 256}
    recipe["plan"] = {"epochs": 2, "lanes": 4, "remainder": remainder}
    with stoker.Loader(recipe, rank=rank, world_size=of) as loader:
        alone = [content(batch) for batch in loader]
    with RayLoader(recipe, rank=rank, world_size=of, workers=1) as loader:
        for _ in range(2):
            assert [content(batch) for batch in loader] == alone
            assert len(loader) == len(alone)
        ended = loader.state_dict()
        assert loader.report().samples == 2 * sum(len(batch["samples"]) for batch in alone)
    with stoker.Loader(recipe, rank=rank, world_size=of) as resumed:
        resumed.load_state_dict(ended)
        assert len(list(resumed)) == len(alone), "the end was seen, and it begins anew"


def test_packed_batches_are_the_same_across_windows_and_after_resuming(recipe):
    recipe["vision"]["pixels"] = "u8"  # as RayLoader would have it by itself
    recipe["pack"] = {"max-tokens": 256}
    del recipe["plan"]["epochs"]
    with stoker.Loader(recipe) as loader:
        alone = [content(batch) for batch in islice(loader, 80)]
    with RayLoader(recipe, workers=2) as loader:
        for batch, same in zip(islice(loader, 70), alone, strict=False):
            differs = [name for name, value in content(batch).items() if value != same[name]]
            assert not differs, batch.sequence
        state = loader.state_dict()
    with RayLoader(recipe, workers=1) as resumed:
        resumed.load_state_dict(state)
        assert [content(batch) for batch in islice(resumed, 10)] == alone[70:]
