"""The examples do what they say, and stay short enough to be read at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import stoker

EXAMPLES = Path(__file__).parents[2] / "examples"
RESUME = EXAMPLES.parent / "docs/guides/resume.md"
MODEL = EXAMPLES.parent / ".setup/models/qwen3-vl"


def run(name: str, *arguments: str | Path) -> str:
    """What an example prints."""
    command = [sys.executable, EXAMPLES / f"{name}.py", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The recipe that `make_data.py` writes."""
    folder = tmp_path_factory.mktemp("examples") / "colours"
    return run("make_data", folder, "--model", MODEL).strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_one_idea_on_one_page(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert re.search(rf"^    (python|torchrun .*) examples/{path.name} ", text, re.M), (
        "how to run it"
    )


def test_looking_at_data_shows_shapes_shares_and_what_is_learned(made):
    output = run("look_at_data", made)
    assert re.search(r"^input_ids +int64 +\[4, \d+\]$", output, re.MULTILINE)
    assert re.search(r"'It is (red|green|blue)\.<\|im_end\|>\\n'", output)


def test_a_resumed_run_is_the_same_as_a_straight_one(made):
    assert "the same as without a stop: True" in run("resume", made)


def test_what_the_guide_to_resuming_shows_runs(made, monkeypatch):
    """But for what needs several processes, which `test_rank` runs."""
    monkeypatch.chdir(Path(made).parent)
    blocks = re.findall(r"^```python\n(.*?)^```", RESUME.read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    for block in blocks:
        if "mesh" not in block:
            exec(block, names)
    assert names["second"].sequence == 1
    loader = stoker.Loader("recipe.toml", rank=0, world_size=1)
    assert names["train"](loader, 5)["batches"] == 5
    loader.close()


def test_a_tiny_model_learns_and_says_how_long_it_waited(made):
    output = run("train_tiny_qwen3_vl", made)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", output)]
    assert len(losses) == 12, "24 samples, 2 epochs, 4 a batch"
    assert losses[-1] < losses[0] / 2
    assert "the trainer waited" in output


def test_transformers_trainer_learns_from_packed_batches(made):
    output = run("trainer_packed", made)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", output)]
    assert len(losses) == 12
    assert losses[-1] < 0.6 * losses[0]
    used = float(re.search(r"(\S+) % of pack.max-tokens is used", output)[1])
    assert used > 85


def guide() -> list[tuple[str, str]]:
    """The code blocks of the guide to packing, with their languages."""
    text = (EXAMPLES.parent / "docs/guides/packing.md").read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_guide_to_packing_shows_a_recipe_that_is_one_and_what_the_example_does(made):
    recipe = next(code for language, code in guide() if language == "toml")
    pack = tomllib.loads(recipe)["pack"]
    overrides = {f"pack.{key}": value for key, value in pack.items()}
    overrides |= {"pack.batch-size": None, "plan.epochs": None, "plan.lanes": 1}
    with stoker.Loader(made, overrides=overrides) as loader:
        batch = next(loader)
    assert batch["input_ids"].shape[1] % pack["pad-to-multiple"] == 0
    python = next(code for language, code in guide() if language == "python")
    example = (EXAMPLES / "trainer_packed.py").read_text()
    assert all(part.strip() in example for part in python.split("\n\n\n")), "the guide shows it"


@pytest.fixture
def on_ray(cluster, monkeypatch):
    """Has the examples join the cluster that the tests have."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)


@pytest.mark.usefixtures("on_ray")
def test_ranks_on_ray_share_the_batches(made):
    output = run("ray_loader", made)
    seen = [json.loads(found) for found in re.findall(r"^rank \d: batches (\[.*\])", output, re.M)]
    assert seen == [list(range(0, 12, 2)), list(range(1, 12, 2))]
    assert output.count("on Ray: data workers: 1") == 2


@pytest.mark.usefixtures("on_ray")
def test_a_job_of_ray_train_ends_with_a_checkpoint(made):
    output = run("ray_train", made)
    found = re.search(r"^the last loss was (\S+); checkpoint in (\S+)$", output, re.M)
    assert 0 <= float(found[1]) < 10
    state = json.loads(Path(found[2], "loader.json").read_text())
    assert state["batches"] == 12 if "batches" in state else state
