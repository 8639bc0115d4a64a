"""Resuming far into a run costs what the next batch costs, and nothing of what was consumed."""

from __future__ import annotations

import time

import pytest
import stoker
from schedules.jobs import model
from stoker._native import DemoDataset, S3Server

SAMPLES = 40
BATCH = 4
WORLD = 8
STEP = 1_000_000


@pytest.fixture
def store(monkeypatch):
    """A store with the latency of S3 that counts its requests, and the key of the data in it."""
    server = S3Server(profile="standard", seed=1)
    data = DemoDataset(seed=3, samples=SAMPLES, pixels=(10_000, 20_000))
    for number in range(len(data)):
        server.put("data", *data.object(number))
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server, data.key
    server.close()


def test_the_first_batch_after_a_million_steps_fetches_nothing_that_was_consumed(
    recipe, store, tmp_path
):
    server, key = store
    recipe["dataset"] = {"source": f"s3://data/{key}", "index-dir": str(tmp_path)}
    recipe["fetch"] = {"endpoint": server.endpoint}
    recipe["plan"] = {"seed": 9}
    recipe["pack"]["batch-size"] = BATCH
    recipe["engine"]["prefetch"] = 0  # so that all that is fetched is for the one batch
    arguments = {"rank": 3, "world_size": WORLD}

    def requests() -> int:
        return server.stats()[0]

    with stoker.Loader(recipe, **arguments) as loader:  # it builds the index
        state = loader.state_dict()
        assert state["batches"] == 0
    # Of a run that came so far; nobody waits for one here.
    state |= {"batches": STEP * WORLD, "samples": STEP * BATCH}

    before, clock = requests(), [time.perf_counter()]
    with stoker.Loader(recipe, **arguments) as loader:
        loader.load_state_dict(state)
        opened = requests()
        clock.append(time.perf_counter())
        batch = next(loader)
        clock.append(time.perf_counter())
        images = batch["image_grid_thw"].shape[0]
        spent = requests() - opened
        assert loader.state_dict()["batches"] == (STEP + 1) * WORLD
    print(
        f"after {STEP} steps: opened in {clock[1] - clock[0]:.3f} s by {opened - before} requests, "
        f"first batch in {clock[2] - clock[1]:.3f} s by {spent} requests for {images} images"
    )
    assert spent == images, "one for each image of the batch; its lines came with the index"
    assert opened - before == 1, "the source is asked whether it is still the one of the index"
    order = model.Recipe((model.Dataset((SAMPLES,)),), seed=9)
    assert batch.sequence == STEP * WORLD + 3
    first = batch.sequence * BATCH
    assert batch.samples == [(0, model.row_at(order, 0, first + n)) for n in range(BATCH)]


def test_what_is_fetched_ahead_after_resuming_is_what_comes_next(recipe, store, tmp_path):
    server, key = store
    recipe["dataset"] = {"source": f"s3://data/{key}", "index-dir": str(tmp_path)}
    recipe["fetch"] = {"endpoint": server.endpoint}
    recipe["plan"] = {"epochs": 100}  # 1,000 batches
    recipe["pack"]["batch-size"] = BATCH
    recipe["engine"]["prefetch"] = 32
    with stoker.Loader(recipe) as loader:
        state = loader.state_dict() | {"batches": 995}
    before = server.stats()[0]
    with stoker.Loader(recipe) as loader:
        loader.load_state_dict(state)
        batches = list(loader)
    images = sum(batch["image_grid_thw"].shape[0] for batch in batches)
    assert len(batches) == 5
    assert server.stats()[0] - before == 1 + images
