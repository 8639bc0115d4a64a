"""The order that loaders give is that of the model which was written from the documentation."""

from __future__ import annotations

import hashlib
import json
import runpy
import struct
from pathlib import Path

import pytest
import stoker
from schedules.jobs import chat, model, write_model

GOLDEN = Path(__file__).parents[2] / "testdata" / "golden" / "plan"
BATCHES = 48
SIZE = 5


@pytest.fixture(scope="module")
def files():
    return runpy.run_path(str(GOLDEN / "model.py"))["files"]()


@pytest.mark.parametrize("name", ["orders.json", "ends.json"])
def test_the_golden_orders_are_what_the_model_writes(files, name):
    assert files[name] == (GOLDEN / name).read_text()


def test_the_golden_batches_of_a_budget_are_what_the_model_writes():
    golden = GOLDEN.parent / "pack" / "batches.json"
    model = runpy.run_path(str(golden.parent / "model.py"))
    assert model["written"]() == golden.read_text()


ORDER = model.Recipe(
    (model.Dataset((61,), "6"), model.Dataset((17,), "2.5"), model.Dataset((1,), "0.25")), seed=21
)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory) -> dict:
    """A mixture of three datasets of text."""
    folder = tmp_path_factory.mktemp("mixture")
    datasets = []
    for number, one in enumerate(ORDER.datasets):
        lines = []
        for row in range(one.rows):
            line = chat(number, row)
            del line["messages"][0]["content"][0]  # the image
            lines.append(json.dumps(line) + "\n")
        source = folder / f"{number}.jsonl"
        source.write_text("".join(lines))
        datasets.append(
            {"name": f"set{number}", "source": str(source), "weight": float(one.weight)}
        )
    return {
        "model": str(write_model(folder / "model")),
        "datasets": datasets,
        "plan": {"seed": ORDER.seed, "lanes": 8},
        "vision": {"family": "qwen3-vl"},
        "pack": {"batch-size": SIZE},
        "engine": {"memory": "16MiB"},
    }


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_the_order_is_the_models_on_any_number_of_ranks_and_threads(mixture, ranks, workers):
    overrides = {"engine.workers": workers, "engine.prefetch": workers}
    loaders = [
        stoker.Loader(mixture, rank=rank, world_size=ranks, overrides=overrides)
        for rank in range(ranks)
    ]
    digest = hashlib.sha256()
    for _ in range(BATCHES // ranks):
        for loader in loaders:
            for sample in next(loader).samples:
                digest.update(struct.pack("<IQ", *sample))
    for loader in loaders:
        loader.close()
    assert digest.hexdigest() == model.order_hash(ORDER, BATCHES * SIZE)
