"""What Lightning is given in place of a loader: exact states, and nothing left over after a fit."""

from __future__ import annotations

from itertools import islice

import lightning
import pytest
import stoker
import torch
from device_double import AlwaysReady
from lightning.pytorch.callbacks import ModelCheckpoint
from stoker.trainers.lightning import DataModule
from test_trainers import Model, open_loader, pytestmark  # noqa: F401
from trainer_runs import digests


@pytest.fixture
def recipe(recipe, small_model):
    """A pass of 5 batches."""
    recipe["model"] = str(small_model)
    recipe["vision"]["family"] = "qwen3-vl"
    recipe["pack"]["batch-size"] = 5
    return recipe


@pytest.fixture
def straight(recipe):
    """All batches of two passes, by the loader alone."""
    with open_loader(recipe) as loader:
        return [digests(batch.to("cpu")) for _ in range(2) for batch in loader]


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, _):
        return self.model(**batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def fit(recipe, folder, resume=None, **arguments):
    module = Module()
    saver = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    lightning.Trainer(
        accelerator="cpu", logger=False, callbacks=[] if resume else [saver],
        enable_checkpointing=not resume, enable_progress_bar=False, enable_model_summary=False,
        **arguments,
    ).fit(module, DataModule(lambda: open_loader(recipe)), ckpt_path=resume)  # fmt: skip
    return module.model


def test_lightning_goes_on_from_each_of_its_checkpoints(recipe, straight, tmp_path):
    whole = fit(recipe, tmp_path, max_epochs=2)
    assert whole.given == straight
    for step in range(1, 10):
        rest = fit(recipe, tmp_path, tmp_path / f"step={step}.ckpt", max_epochs=2)
        assert rest.given == straight[step:]
        assert torch.equal(rest.weight, whole.weight)


def test_lightning_goes_on_where_it_looks_ahead(recipe, tmp_path):
    """Of an endless loader it takes a batch more than it trains on."""
    recipe["plan"]["epochs"] = None
    whole = fit(recipe, tmp_path, max_steps=6)
    rest = fit(recipe, tmp_path, tmp_path / "step=4.ckpt", max_steps=6)
    assert len(whole.given) == 6
    assert rest.given == whole.given[4:]


def test_lightning_opens_a_loader_again_and_closes_it(recipe, straight, tmp_path):
    opened = []

    def opener():
        opened.append(open_loader(recipe))
        return opened[-1]

    data = DataModule(opener)
    for _ in range(2):
        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=2,
            enable_progress_bar=False, enable_model_summary=False,
            reload_dataloaders_every_n_epochs=1,
        )  # fmt: skip
        trainer.fit(module, data)
        trainer.save_checkpoint(tmp_path / "saved.ckpt")
        assert module.model.given == straight, "in each fit"
    assert len(opened) == 4
    for loader in opened:
        with pytest.raises(stoker.StoppedError):
            loader.load_state_dict(loader.state_dict())
    with open_loader(recipe) as loader:
        states = [batch.state_dict() for _ in range(2) for batch in loader]
    saved = torch.load(tmp_path / "saved.ckpt")["DataModule"]["loader"]
    assert saved == states[-1], "of the batch that was trained on last"


def test_lightning_lets_go_of_what_was_copied_ahead(recipe):
    recipe["plan"]["epochs"] = None
    data = DataModule(lambda: AlwaysReady(open_loader(recipe)))
    lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, max_steps=2,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Module(), data)  # fmt: skip
    batches = data._train._passes.loader
    assert not batches._ahead
    with pytest.raises(stoker.StoppedError):
        next(batches)
    with open_loader(recipe) as loader:
        states = [batch.state_dict() for batch in islice(loader, 2)]
    assert data.state_dict() == {"loader": states[-1]}


def test_lightning_validates_with_a_loader_of_its_own(recipe, straight):
    class Validated(Module):
        def validation_step(self, batch, _):
            self.model(**batch)

    module = Validated()
    data = DataModule(lambda: open_loader(recipe), lambda: open_loader(recipe))
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=2,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=2,
    )  # fmt: skip
    trainer.fit(module, data)
    assert module.model.given[2:] == straight[:5] * 4


def test_a_lightning_checkpoint_without_a_loaders_state_is_refused(recipe):
    with pytest.raises(ValueError, match="saved without a state of the loader"):
        DataModule(lambda: open_loader(recipe)).load_state_dict({})
