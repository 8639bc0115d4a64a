"""The examples of trainers, stopped and run again: the model is given what it would have been.

Each half is a process of its own, on as many ranks as is said. What the model is given, all tensors
of all batches, is compared with what a loader alone gives without a stop.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import stoker
from trainer_runs import EXAMPLES, Runs, digests

MODEL = EXAMPLES.parent / ".setup/models/qwen3-vl"
GUIDE = EXAMPLES.parent / "docs/guides/trainers.md"
PACKED = {
    "pack.batch-size": None,
    "pack.max-tokens": 160,
    "pack.min-images-per-batch": 1,
    "plan.epochs": None,
    "plan.lanes": 2,
}


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> str:
    """The recipe that `make_data.py` writes: 12 batches."""
    folder = tmp_path_factory.mktemp("trainers") / "colours"
    command = [sys.executable, EXAMPLES / "make_data.py", folder, "--model", MODEL]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def straight(recipe: str, overrides=None) -> list[dict[str, str]]:
    """What a loader gives."""
    with stoker.Loader(recipe, rank=0, world_size=1, overrides=overrides) as loader:
        return [digests(batch.to("cpu")) for _, batch in zip(range(12), loader, strict=False)]


def places(given: list[dict[str, str]], whole: list[dict[str, str]]) -> list[int]:
    """Which batches these are: those all tensors of which are equal."""
    found = []
    for batch in given:
        assert batch.keys() >= {"input_ids", "pixel_values", "image_grid_thw", "position_ids"}
        same = [place for place, other in enumerate(whole) if batch.items() <= other.items()]
        assert len(same) == 1, same
        found += same
    return found


def halves(runs, example, recipe, folder, first, rest, overrides=None, keep="run"):
    """Runs an example until a step on so many ranks, then until another: the batches of each."""
    whole = straight(recipe, overrides)
    found = []
    for name, (until, ranks) in {"first": first, "rest": rest}.items():
        given = runs(example, recipe, folder / keep, until, folder=folder / name, ranks=ranks)
        found.append([places(rank, whole) for rank in given])
    return found


@pytest.mark.parametrize("example", ["train_ddp", "train_fsdp2"])
def test_a_loop_goes_on_on_another_number_of_ranks(runs, made, tmp_path, example):
    first, rest = halves(runs, example, made, tmp_path, (2, 2), (4, 1))
    assert first == [[0, 2], [1, 3]]
    assert rest == [[4, 5]]


def test_torchtitan_goes_on_on_another_number_of_ranks(runs, made, tmp_path):
    first, rest = halves(runs, "trainer_torchtitan", made, tmp_path, (2, 1), (4, 2))
    assert first == [[0, 1]]
    assert rest == [[2, 4], [3, 5]]


def test_transformers_trainer_goes_on(runs, made, tmp_path):
    """Two batches a step."""
    first, rest = halves(runs, "trainer_transformers", made, tmp_path, (1, 2), (2, 2))
    assert first == [[0, 2], [1, 3]]
    assert rest == [[4, 6], [5, 7]]
    alone = runs(
        "trainer_transformers", made, tmp_path / "run", 3, folder=tmp_path / "alone", ranks=1
    )
    assert places(alone[0], straight(made)) == [8, 9], "and on one rank"
    (saved,) = tmp_path.glob("run/checkpoint-1/trainer_state.json")
    state = json.loads(saved.read_text())["stateful_callbacks"]["LoaderState"]
    assert state["attributes"]["loader"]["batches"] == 4


def test_accelerate_goes_on_within_a_step(runs, made, tmp_path):
    first, rest = halves(runs, "trainer_accelerate", made, tmp_path, (3, 2), (5, 1))
    assert first == [[0, 2, 4], [1, 3, 5]]
    assert rest == [[6, 7]]


def test_lightning_goes_on_on_another_number_of_ranks(runs, made, tmp_path):
    first, rest = halves(
        runs, "trainer_lightning", made, tmp_path, (2, None), (4, 2), keep="saved.ckpt"
    )
    assert first == [[0, 1]]
    assert rest == [[2, 4], [3, 5]]


def test_trl_trains_on_packed_images_and_goes_on(runs, made, tmp_path):
    first, rest = halves(
        runs, "trainer_trl", made, tmp_path, (2, None), (3, None), overrides=PACKED
    )
    assert first == [[0, 1]]
    assert rest == [[2]]
    said = (tmp_path / "rest/0.txt").read_text()
    assert float(re.search(r"(\S+) % of pack.max-tokens is used", said)[1]) > 85
    assert 0 < float(re.search(r"'loss': '?([\d.]+)", said)[1]) < 20


def test_the_guide_shows_what_the_examples_do():
    text = GUIDE.read_text()
    blocks = re.findall(r"^```python\n# examples/(\w+)\.py\n(.*?)^```$", text, re.M | re.S)
    everything = re.findall(r"^```python$", text, re.M)
    assert len(blocks) == len(everything) >= 7
    for name, code in blocks:
        example = (EXAMPLES / f"{name}.py").read_text()
        for part in code.split("...\n"):
            lines = [line.strip() for line in part.strip().splitlines()]
            assert "\n".join(lines) in "\n".join(line.strip() for line in example.splitlines()), (
                f"{name}: {part}"
            )


def test_trainers_own_libraries_are_imported_by_their_modules_only():
    code = (
        "import sys, stoker.trainers, stoker.trainers.torchtitan\n"
        "print(sorted({'accelerate', 'lightning', 'transformers', 'trl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
