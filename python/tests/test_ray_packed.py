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
