"""Inside Ray Train, and beside Ray Data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

import ray.data
import ray.train
import stoker
from ray.train.torch import TorchTrainer
from stoker import _rank
from stoker.ray import dataset

pytestmark = pytest.mark.usefixtures("cluster")


def trainer(recipe, folder, ranks, **config):
    """A job whose ranks write down what they see; ended after `steps`, with a checkpoint."""

    def train(config):
        import hashlib
        import tempfile

        from stoker.ray import RayLoader

        seen = []
        with RayLoader(config["recipe"]) as loader:
            if config["state"]:
                loader.load_state_dict(config["state"])
            for batch in loader:
                arrays = b"".join(array.tobytes() for array in batch.numpy().values())
                seen.append((batch.sequence, hashlib.sha256(arrays).hexdigest()))
                if len(seen) == config["steps"]:
                    break
            with tempfile.TemporaryDirectory() as made:
                Path(made, "loader.json").write_text(json.dumps(loader.state_dict()))
                checkpoint = ray.train.Checkpoint.from_directory(made)
                ray.train.report({"seen": len(seen)}, checkpoint=checkpoint)
            named = f"{config['name']}-{loader.rank}-{loader.world_size}.json"
            (Path(config["folder"]) / named).write_text(json.dumps(seen))

    return TorchTrainer(
        train,
        train_loop_config={"recipe": recipe, "folder": str(folder), "state": None, **config},
        scaling_config=ray.train.ScalingConfig(num_workers=ranks),
        run_config=ray.train.RunConfig(storage_path=str(folder / "ray"), name=config["name"]),
    )


def test_a_job_goes_on_from_its_checkpoint_on_another_number_of_ranks(recipe, tmp_path):
    recipe["pack"]["batch-size"] = 1
    result = trainer(recipe, tmp_path, 2, name="first", steps=5).fit()
    with result.checkpoint.as_directory() as made:
        state = json.loads(Path(made, "loader.json").read_text())
    trainer(recipe, tmp_path, 1, name="rest", steps=100, state=state).fit()

    files = ["first-0-2.json", "first-1-2.json", "rest-0-1.json"]
    one, other, rest = (json.loads((tmp_path / name).read_text()) for name in files)
    seen = [tuple(batch) for step in zip(one, other, strict=True) for batch in step]
    seen += [tuple(batch) for batch in rest]

    recipe["vision"]["pixels"] = "u8"
    with stoker.Loader(recipe) as loader:
        for (sequence, digest), batch in zip(seen, loader, strict=True):
            arrays = b"".join(array.tobytes() for array in batch.numpy().values())
            assert (sequence, digest) == (batch.sequence, hashlib.sha256(arrays).hexdigest())


def test_the_rank_is_that_of_ray_train_within_a_training_function(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _rank.resolve(None, None) == (1, 2), "outside, others say it"

    class Context:
        get_world_rank = staticmethod(lambda: 3)
        get_world_size = staticmethod(lambda: 4)

    monkeypatch.setattr(ray.train, "get_context", Context)
    assert _rank.resolve(None, None) == (3, 4)
    assert _rank.resolve(0, 1) == (0, 1)


def test_ray_data_has_a_row_for_each_batch(recipe, monkeypatch):
    context = ray.data.DataContext.get_current()
    monkeypatch.setattr(context, "enable_progress_bars", False)
    monkeypatch.setattr(context.execution_options, "preserve_order", True)
    rows = dataset(recipe).take_all()
    with stoker.Loader(recipe) as loader:
        for row, batch in zip(rows, loader, strict=True):
            assert row.pop("sequence") == batch.sequence
            assert row.pop("sample_mask").tolist() == batch.sample_mask
            arrays = batch.numpy()
            assert row.keys() == arrays.keys()
            for name, array in arrays.items():
                assert (row[name] == array).all()
                assert row[name].dtype == array.dtype


def test_an_endless_recipe_is_no_dataset(recipe):
    del recipe["plan"]["epochs"]
    with pytest.raises(TypeError, match=r"plan\.epochs"):
        dataset(recipe)
