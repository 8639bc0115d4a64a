"""The order that loaders give is that of the model which was written from the documentation."""

from __future__ import annotations

import hashlib
import json
import runpy
import struct
from pathlib import Path
from types import SimpleNamespace

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


PACKED = GOLDEN.parent / "pack"


@pytest.fixture(scope="module")
def packing():
    """The model of which samples share a batch."""
    return SimpleNamespace(**runpy.run_path(str(PACKED / "model.py")))


def test_the_golden_batches_of_a_budget_are_what_the_model_writes(packing):
    assert packing.written() == (PACKED / "batches.json").read_text()
    assert packing.passes_written() == (PACKED / "passes.json").read_text()


@pytest.fixture(scope="module")
def stream(plain_recipe) -> tuple[list[tuple[int, int]], list[tuple[int, list[int]]]]:
    """The samples of twelve epochs in the order of the plan: which, and their sizes."""
    alone = {"pack.batch-size": 1, "plan.epochs": 12, "vision.pixels": "u8"}
    ids, sizes = [], []
    with stoker.Loader(plain_recipe, overrides=alone) as loader:
        for batch in loader:
            ids += batch.samples
            arrays = batch.numpy()
            patches = arrays["image_grid_thw"].prod(axis=1).tolist()
            sizes.append((arrays["input_ids"].shape[1], patches))
    return ids, sizes


@pytest.mark.parametrize(
    ("remainder", "epochs", "lanes", "limits"),
    [
        ("pad", 1, 8, {"max_tokens": 300}),
        ("fill", 6, 4, {"max_tokens": 200, "min_images_per_batch": 2, "max_images": 3}),
        ("drop", 7, 2, {"max_tokens": 256, "pad_to_multiple": 48, "max_patches": 600}),
    ],
)
def test_a_packed_run_is_the_models(
    plain_recipe, packing, stream, remainder, epochs, lanes, limits
):
    ids, sizes = stream
    samples = [packing.Sample(tokens, patches) for tokens, patches in sizes]
    length = 24 * epochs
    batches, behind = packing.run(samples, length, lanes, packing.Limits(**limits))
    expected = [[ids[position] for position in batch] for batch in batches]
    after = [[ids[position] for position in batch] for batch in behind]
    recipe = plain_recipe | {
        "plan": {"epochs": epochs, "lanes": lanes, "remainder": remainder},
        "pack": {name.replace("_", "-"): value for name, value in limits.items()},
        "vision": plain_recipe["vision"] | {"pixels": "u8"},
    }
    for ranks in {1, 2, lanes}:
        steps = len(batches) // ranks if remainder == "drop" else -(-len(batches) // ranks)
        seen = []
        for rank in range(ranks):
            with stoker.Loader(recipe, rank=rank, world_size=ranks) as loader:
                seen.append([(batch.samples, batch.sample_mask) for batch in loader])
                assert len(seen[-1]) == steps
        seen = [batch for step in zip(*seen, strict=True) for batch in step]
        inside, filled = seen[: len(batches)], seen[len(batches) :]
        assert [of for of, _ in inside] == expected[: len(inside)]
        least = limits.get("min_images_per_batch", 0)
        for of, mask in inside:
            images = sum(1 + row % 2 for _, row in of)
            assert mask == [True] * len(of) + [False] * max(0, least - images)
        if remainder == "pad":
            assert all(of == [] and mask and not any(mask) for of, mask in filled)
        else:
            assert [of for of, _ in filled] == after[: len(filled)]


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
