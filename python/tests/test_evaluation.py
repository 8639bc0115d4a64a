"""Finite passes: every row once on any number of ranks, whatever is bad; and the ledger of it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import stoker
import torch
from conftest import ROWS, sample
from stoker._native import Front, Maker

BAD = {5: "not-json", 14: "missing", 20: "nothing-to-learn"}


@pytest.fixture
def padded(recipe, folder, tmp_path):
    """A padded pass over 22 rows, three of them bad, 4 a batch."""
    lines = (folder / "chats.jsonl").read_text().splitlines()[: ROWS - 2]
    lines[5] = '{"messages": ['
    lines[14] = json.dumps(sample(14, ["nowhere.jpg"]))
    lines[20] = json.dumps({"messages": [{"role": "user", "content": "What?"}]})
    (tmp_path / "held-out.jsonl").write_text("\n".join(lines))
    recipe["dataset"] = {
        "source": str(tmp_path / "held-out.jsonl"),
        "media-root": str(folder),
        "index-dir": str(tmp_path),
    }
    recipe["plan"] |= {"remainder": "pad", "lanes": 8}
    recipe["engine"]["ledger"] = str(tmp_path / "ledger")
    return recipe


def content(batch: stoker.Batch) -> dict:
    arrays = {name: array.tobytes() for name, array in batch.numpy().items()}
    return {"samples": batch.samples, "mask": batch.sample_mask, **arrays}


def contents(loader) -> list[dict]:
    return [content(batch) for batch in loader]


def ledger(recipe) -> list[tuple[int, int, str, str]]:
    files = Path(recipe["engine"]["ledger"]).glob("rank-*.jsonl")
    entries = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    keys = ("sequence", "row", "code", "outcome")
    return sorted(tuple(entry[key] for key in keys) for entry in entries)


@pytest.mark.parametrize("ranks", [2, 8])
def test_every_row_comes_once_and_the_rest_is_masked(padded, ranks):
    loaders = [stoker.Loader(padded, rank=rank, world_size=ranks) for rank in range(ranks)]
    assert {len(loader) for loader in loaders} == {-(-6 // ranks)}
    steps = zip(*[contents(loader) for loader in loaders], strict=True)
    seen = [batch for step in steps for batch in step]
    assert seen[:6] == contents(stoker.Loader(padded))
    assert sorted(row for batch in seen for _, row in batch["samples"]) == list(range(ROWS - 2))
    for batch in seen:
        assert len(batch["mask"]) == 4
        counted = [row not in BAD for _, row in batch["samples"]]
        assert batch["mask"] == counted + [False] * (4 - len(counted))


def test_what_is_masked_teaches_nothing_and_can_be_computed_with(padded):
    (batch,) = stoker.Loader(padded, rank=7, world_size=8)
    assert (batch.samples, batch.sample_mask) == ([], [False] * 4)
    assert "pixel_values" in batch, "sharded vision towers wait for all ranks"
    batches = list(stoker.Loader(padded))
    for batch in batches:
        mask = torch.tensor(batch.sample_mask)
        learned = (batch.torch()["labels"] != -100).any(dim=1)
        assert torch.equal(learned, mask)
        assert batch.torch()["attention_mask"].any(dim=1).all()
    assert len(batches[-1].samples) == 2
    assert batches[-1].sample_mask[2:] == [False, False]


def test_the_report_and_the_ledger_have_each_bad_row_once(padded):
    loader = stoker.Loader(padded)
    sequences = {row: batch.sequence for batch in loader for _, row in batch.samples}
    report = loader.report()
    assert (report.samples, report.replaced, report.neutralised) == (ROWS - 2, 0, len(BAD))
    flaws = {(flaw.code, flaw.outcome, flaw.samples) for flaw in report.flaws}
    assert flaws == {(code, "neutralised", 1) for code in BAD.values()}
    expected = [(sequences[row], row, code, "neutralised") for row, code in BAD.items()]
    assert ledger(padded) == sorted(expected)
    contents(loader)
    assert ledger(padded) == sorted(expected), "a second pass begins its ledger anew"


def test_a_pass_resumed_on_other_ranks_goes_on_with_rows_and_ledger(padded):
    straight = contents(stoker.Loader(padded))
    whole = ledger(padded)
    first = [stoker.Loader(padded, rank=rank, world_size=2) for rank in range(2)]
    for loader in first:
        next(loader)
    state = first[0].state_dict()
    for loader in first:
        next(loader)  # and then the job dies
    rest = []
    for rank in range(4):
        loader = stoker.Loader(padded, rank=rank, world_size=4)
        loader.load_state_dict(json.loads(json.dumps(state)))
        rest.append(contents(loader))
    assert [batch for step in zip(*rest, strict=True) for batch in step] == straight[2:6]
    assert ledger(padded) == whole


def test_batches_made_elsewhere_keep_their_mask(padded):
    loader, front = (kind(padded, rank=1, world_size=4) for kind in (stoker.Loader, Front))
    maker = Maker(padded)
    assert len(front) == len(loader) == 2
    for batch in loader:
        made = pickle.loads(pickle.dumps(maker.make(front.sequence_at(0))))
        assert content(front.hand_over(made, blocked=0.0)) == content(batch)
    assert front.sequence_at(0) is None
    assert front.report().samples == loader.report().samples
    maker.close()


def test_too_many_bad_samples_raise_with_the_list(padded):
    padded["engine"]["bad-sample-limit"] = 0.001
    loader = stoker.Loader(padded, overrides={"plan.shuffle": "none"})
    with pytest.raises(stoker.DatasetError, match="bad-sample-limit") as caught:
        contents(loader)
    assert caught.value.kind == "bad-samples"
    assert [bad.sample for bad in caught.value.bad_samples] == [(0, 5), (0, 14)]
    first = caught.value.bad_samples[0]
    assert (first.room, first.code, first.outcome) == ("dataset", "not-json", "neutralised")
    assert first.origin.endswith("held-out.jsonl:6")
    assert first.reason in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.bad_samples == caught.value.bad_samples


@pytest.mark.usefixtures("cluster")
def test_on_ray_a_pass_has_the_same_mask_and_ledger(padded):
    from stoker.ray import RayLoader

    padded["vision"]["pixels"] = "u8"
    here = contents(stoker.Loader(padded, rank=1, world_size=4))
    whole = ledger(padded)
    loader = RayLoader(padded, rank=1, world_size=4, workers=1)
    assert contents(loader) == here
    assert ledger(padded) == whole
    assert [flaw.samples for flaw in loader.report().flaws] == [1] * len(whole)
    loader.close()
