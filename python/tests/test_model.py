"""A tiny Qwen3-VL with random weights, and transformers' own processor beside ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stoker
import torch
import transformers


@pytest.fixture
def reference(recipe):
    """What transformers' processor makes of the same samples."""
    processor = transformers.AutoProcessor.from_pretrained(recipe["model"])
    processor.image_processor.size = {
        "shortest_edge": recipe["vision"]["min-pixels"],
        "longest_edge": recipe["vision"]["max-pixels"],
    }
    source = Path(recipe["dataset"]["source"])
    lines = source.read_text().splitlines()

    def chat(row: int) -> list[dict]:
        messages = json.loads(lines[row])["messages"]
        messages[1]["content"] = [{"type": "text", "text": messages[1]["content"]}]
        for part in messages[0]["content"]:
            if part["type"] == "image":
                part["image"] = str(source.parent / part["image"])
        return messages

    def make(samples: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        return processor.apply_chat_template(
            [chat(row) for _, row in samples],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True, "padding_side": "right"},
        )

    return make


@pytest.mark.filterwarnings("ignore:The image decoding")  # of torchvision, by transformers
def test_batches_and_logits_equal_those_of_the_models_own_processor(recipe, model, reference):
    model.eval()
    for batch in stoker.Loader(recipe, overrides={"pack.batch-size": 2}):
        ours, theirs = batch.to("cpu"), reference(batch.samples)
        for name in theirs:
            assert torch.equal(ours[name], theirs[name]), name
        with torch.no_grad():
            kept = ours["attention_mask"].bool()
            one, other = model(**ours).logits[kept], model(**theirs).logits[kept]
        assert torch.equal(one, other)


def test_a_model_learns_from_our_batches(recipe, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for batch in stoker.Loader(recipe, overrides={"pack.batch-size": 2}):
        loss = model(**batch.to("cpu")).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > 10, "near log(151936), as nothing is known yet"
    assert sum(losses[-3:]) / 3 < losses[0] / 2, losses
