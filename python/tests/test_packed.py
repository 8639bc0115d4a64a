"""Packed batches in transformers' models: samples that share a row see nothing of each other."""

from __future__ import annotations

import json
from itertools import islice, pairwise

import pytest
import stoker
import torch
import transformers


def batches(recipe: dict, count: int, **pack) -> list[dict]:
    recipe = {**recipe, "pack": {key.replace("_", "-"): value for key, value in pack.items()}}
    with stoker.Loader(recipe) as loader:
        return [batch.to("cpu") for batch in islice(loader, count)]


def logits(model, batch: dict) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(**batch).logits[0]


def segments(batch: dict) -> list[slice]:
    return [slice(*pair) for pair in pairwise(batch["cu_seq_lens_q"].tolist())]


def furthest(model, packed: dict, separate: list[dict]) -> float:
    """By how much any logit of a packed row differs from that of the sample alone."""
    row = logits(model, packed)
    pairs = zip(segments(packed), separate, strict=False)
    return max((row[part] - logits(model, alone)).abs().max().item() for part, alone in pairs)


@pytest.mark.parametrize("pad_to_multiple", [1, 256])
def test_packed_samples_have_the_logits_of_single_ones(recipe, either_model, pad_to_multiple):
    separate = batches(recipe, 6, batch_size=1)
    packed = batches(recipe, 2, batch_size=3, layout="packed", pad_to_multiple=pad_to_multiple)
    for number, batch in enumerate(packed):
        assert batch["input_ids"].shape[1] % pad_to_multiple == 0
        assert len(segments(batch)) == 3 + (pad_to_multiple > 1)
        assert furthest(either_model, batch, separate[3 * number :][:3]) < 1e-6


def without(name: str):
    return lambda batch: {key: value for key, value in batch.items() if key != name}


@pytest.mark.parametrize(
    "spoil",
    [
        without("use_cache"),
        without("position_ids"),
        lambda batch: {**batch, "position_ids": batch["position_ids"][1:]},
        lambda batch: {**batch, "attention_mask": torch.ones_like(batch["input_ids"])},
    ],
    ids=["use_cache", "position_ids", "three_rows", "attention_mask"],
)
def test_each_part_of_the_packed_form_is_needed(recipe, model, spoil):
    separate = batches(recipe, 3, batch_size=1)
    (packed,) = batches(recipe, 1, batch_size=3, layout="packed")
    if "position_ids" not in spoil(packed):
        packed["mm_token_type_ids"] = (packed["input_ids"] == model.config.image_token_id).long()
    assert furthest(model, spoil(packed), separate) > 0.1


def lone_loss(model, separate: list[dict]) -> float:
    """The loss over the labels of all samples, each seen alone."""
    parts = [logits(model, alone)[:-1].double() for alone in separate]
    labels = [alone["labels"][0, 1:] for alone in separate]
    return torch.nn.functional.cross_entropy(torch.cat(parts), torch.cat(labels)).item()


class Stream(torch.utils.data.IterableDataset):
    """What a user of `transformers.Trainer` writes around a loader."""

    def __init__(self, loader, change) -> None:
        self.loader, self.change = loader, change

    def __iter__(self):
        for batch in self.loader:
            yield self.change(batch.to("cpu"))


def trainer_losses(recipe: dict, model, folder, change=dict) -> list[float]:
    """The losses of the model as transformers' own Trainer calls it; nothing is learned."""
    losses = []
    hook = lambda _module, _given, output: losses.append(output.loss.item())  # noqa: E731
    handle = model.register_forward_hook(hook)
    model.eval()  # dropout would be all that differs; the Trainer sets it back
    recipe["pack"] = {"batch-size": 3, "layout": "packed"}
    with stoker.Loader(recipe) as loader:
        transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=str(folder),
                max_steps=2,
                per_device_train_batch_size=1,
                learning_rate=0.0,
                remove_unused_columns=False,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Stream(loader, change),
            data_collator=lambda rows: rows[0],
        ).train()
    handle.remove()
    return losses


def test_the_trainer_of_transformers_keeps_packed_samples_apart(recipe, model, tmp_path):
    separate = batches(recipe, 6, batch_size=1)
    expected = [lone_loss(model, separate[:3]), lone_loss(model, separate[3:])]
    losses = trainer_losses(recipe, model, tmp_path)
    assert losses == pytest.approx(expected, abs=2e-6)
    leaking = trainer_losses(recipe, model, tmp_path, without("use_cache"))
    assert abs(leaking[0] - expected[0]) > 1e-3, "else `use_cache` is no longer needed"


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_batch_without_images_reaches_the_vision_tower(recipe, either_model, layout, tmp_path):
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello you"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": talk}) + "\n")
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    recipe["engine"]["on-bad-sample"] = "stop"
    pack = {"batch_size": 2, "layout": layout}
    (plain,) = batches(recipe, 1, **pack)
    (with_image,) = batches(recipe, 1, **pack, min_images_per_batch=1)
    assert "pixel_values" not in plain
    assert with_image["image_grid_thw"].tolist() == [[1, 2, 2]]
    loss, same = (either_model(**batch).loss for batch in (plain, with_image))
    assert same.item() == pytest.approx(loss.item(), abs=1e-6)
    same.backward()
    tower = either_model.model.visual.parameters()
    gradients = [parameter.grad for parameter in tower]
    assert gradients
    assert all(gradient is not None and not gradient.any() for gradient in gradients)


def test_scalars_stand_beside_the_tensors(recipe):
    recipe["pack"] = {"batch-size": 3, "layout": "packed"}
    with stoker.Loader(recipe) as loader:
        batch = next(loader)
    longest = max(part.stop - part.start for part in segments(batch.torch()))
    assert batch.scalars == {"max_length_q": longest, "max_length_k": longest, "use_cache": False}
    assert type(batch.scalars["max_length_q"]) is int
    assert batch.scalars["use_cache"] is False
    for everything in (batch.torch(), batch.to("cpu")):
        assert list(everything) == [*batch, *batch.scalars]
    assert list(batch.numpy()) == list(batch)
    assert "use_cache" not in batch


def test_scalars_survive_pickling(recipe):
    import pickle

    recipe["pack"] = {"batch-size": 3, "layout": "packed"}
    with stoker.Loader(recipe) as loader:
        batch = next(loader)
    assert pickle.loads(pickle.dumps(batch)).scalars == batch.scalars


def test_the_layout_of_qwens_finetuning_code(recipe):
    (packed,) = batches(recipe, 1, batch_size=3, layout="packed")
    (official,) = batches(recipe, 1, batch_size=3, layout="official-finetune")
    assert torch.equal(official.pop("attention_mask"), packed.pop("cu_seq_lens_q"))
    assert torch.equal(official.pop("position_ids"), packed.pop("position_ids")[1:])
    for name in ("cu_seq_lens_k", "max_length_q", "max_length_k", "use_cache"):
        del packed[name]
    assert official.keys() == packed.keys()
    assert all(torch.equal(official[name], packed[name]) for name in packed)
