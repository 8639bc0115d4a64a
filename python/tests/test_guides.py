"""The examples of the guides run, and do what the guides say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import stoker
import torch
from conftest import ROWS, sample

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
VOCABULARY = 151_936


def examples(guide: str) -> list[str]:
    """The Python of a guide."""
    return re.findall(r"^```python\n(.*?)^```$", (GUIDES / guide).read_text(), re.M | re.S)


def run(example: str, **names: object) -> dict[str, object]:
    names |= {"stoker": stoker}
    exec(compile(example, "guide", "exec"), names)
    return names


class Model(torch.nn.Module):
    """Tokens in, logits out; what it says of a token depends on that token alone."""

    def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> SimpleNamespace:
        logits = torch.zeros(*input_ids.shape, VOCABULARY)
        return SimpleNamespace(logits=logits.scatter(2, (input_ids % 1000)[:, :, None], 5.0))


@pytest.fixture
def recipe(recipe, folder, tmp_path):
    """22 rows, one of them bad."""
    lines = (folder / "chats.jsonl").read_text().splitlines()[: ROWS - 2]
    lines[7] = json.dumps(sample(7, ["nowhere.jpg"]))
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    recipe["dataset"] |= {"source": str(tmp_path / "chats.jsonl"), "media-root": str(folder)}
    recipe["plan"] = {}
    return recipe


def test_the_loss_of_an_evaluation_is_that_of_its_samples_one_by_one(recipe, capsys):
    loss, _ = examples("evaluation.md")
    run(loss, recipe=recipe, model=Model(), device="cpu")
    says = re.fullmatch(r"loss (\S+) over (\d+) tokens\n", capsys.readouterr().out)
    # One row at a time, in the order of the source, without the bad one.
    alone = {"pack.batch-size": 1, "plan.epochs": 1, "plan.remainder": "pad"}
    losses = []
    for batch in stoker.Loader(recipe, overrides=alone):
        (tokens,), (labels,) = (batch.torch()[name] for name in ("input_ids", "labels"))
        for here, there in zip(tokens[:-1].tolist(), labels[1:].tolist(), strict=True):
            if there != -100:
                logits = torch.zeros(VOCABULARY)
                logits[here % 1000] = 5.0
                losses.append((logits.logsumexp(0) - logits[there]).item())
    assert int(says[2]) == len(losses)
    assert float(says[1]) == pytest.approx(sum(losses) / len(losses), abs=2e-4)


def test_values_of_samples_are_those_of_all_good_rows(recipe):
    _, values = examples("evaluation.md")

    def score(batch):
        return list(range(len(batch.sample_mask)))

    found = run(values, recipe=recipe, score=score)["values"]
    assert sorted(found) == [(0, row) for row in range(ROWS - 2) if row != 7]


def test_bad_samples_are_listed_by_error_and_report(recipe, capsys):
    error, report = examples("bad-samples.md")
    recipe["plan"] = {"epochs": 1}
    run(error, loader=stoker.Loader(recipe, overrides={"engine.bad-sample-limit": 0.0}))
    listed = capsys.readouterr().out
    assert re.match(r"\(0, 7\) replaced fetch/missing .*nowhere.jpg.*chats.jsonl:8\n$", listed)
    loader = stoker.Loader(recipe)
    assert len(list(loader)) == 6
    run(report, loader=loader)
    counted, words = capsys.readouterr().out.splitlines()
    assert counted == f"{loader.report().replaced} replaced fetch/missing"
    assert "nowhere.jpg" in words


def test_a_data_loader_without_workers_gives_the_loaders_batches(recipe):
    (facade,) = examples("processes.md")
    recipe["plan"] = {"epochs": 1}
    batches = run(facade, recipe=recipe)["batches"]
    seen = [batch["input_ids"] for batch in batches]
    straight = [batch.torch()["input_ids"] for batch in stoker.Loader(recipe)]
    assert all(map(torch.equal, seen, straight))
    assert len(seen) == len(straight) == 6


def test_a_run_is_watched_as_the_guide_says(recipe, capsys):
    bar, stats, telemetry = examples("live.md")
    recipe["plan"] = {"epochs": 1}
    trained, logged, scalars = [], [], {}
    with stoker.Loader(recipe) as loader:
        run(telemetry, loader=loader)
        run(bar, loader=loader, train=trained.append)
        wandb = SimpleNamespace(log=lambda stats, step: logged.append((step, stats)))
        writer = SimpleNamespace(add_scalar=lambda *scalar: scalars.update([scalar[:2]]))
        run(stats, loader=loader, wandb=wandb, writer=writer, step=6)
    assert len(trained) == 6
    assert " 6/6 " in capsys.readouterr().err
    assert logged == [(6, scalars)]
    guide = (GUIDES / "live.md").read_text()
    named = re.findall(r"`(stoker/[a-z0-9_/]+)`", guide)
    assert len(named) > 5
    assert set(named) <= set(scalars)
    metrics = set(re.findall(r"`(stoker_[a-z_]+)`", guide))
    families = stoker._native._families(loader.report().as_dict(), 0, 1)
    assert metrics <= {family["name"] for family in families}


def test_a_trace_and_a_page_are_made_as_the_guide_makes_them(quick, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace, page = examples("trace.md")
    with stoker.Loader(quick, overrides={"engine.bad-sample-limit": 0.1}) as loader:
        run(trace, loader=loader, train=lambda batch: batch.torch())
        run(page, loader=loader)
    both = json.loads(Path("both.json").read_text())
    blocked = [event for event in both["traceEvents"] if event["name"] == "trainer blocked"]
    assert len(blocked) == 20
    assert "stage 2, run 17" in Path("run.html").read_text()


def test_batches_come_to_a_device_ahead_of_their_use(recipe, capsys):
    (example,) = examples("device.md")
    recipe["plan"] = {"epochs": 1}
    seen = []

    def model(**batch):
        seen.append(batch["input_ids"])
        return SimpleNamespace(loss=0.0)

    example = example.replace('"recipe.toml"', "recipe")
    run(example, recipe=recipe, device="cpu", dtype=torch.bfloat16, model=model)
    with stoker.Loader(recipe) as loader:
        expected = [batch.torch()["input_ids"] for batch in loader]
    assert all(map(torch.equal, seen, expected))
    assert len(seen) == len(expected) > 0
    assert capsys.readouterr().out.strip(), "the report"
