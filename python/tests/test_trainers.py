"""What trainers are given in place of a loader: whole passes, exact states, no data lost."""

from __future__ import annotations

from itertools import islice

import accelerate
import pytest
import stoker
import torch
import transformers
from device_double import AlwaysReady
from schedules.jobs import write_model
from stoker.trainers import Batches, DataLoader, torchtitan
from stoker.trainers.transformers import LoaderState, TrainerMixin
from trainer_runs import digests

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ENDLESS = {"plan.epochs": None}


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    """A model folder that is quick to open: it is opened often here."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def recipe(recipe, processor):
    """A pass of 5 batches."""
    recipe["model"] = str(processor)
    recipe["vision"]["family"] = "qwen3-vl"
    recipe["pack"]["batch-size"] = 5
    return recipe


@pytest.fixture
def straight(recipe):
    """All batches of two passes, by the loader alone."""
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:
        return [digests(batch.to("cpu")) for _ in range(2) for batch in loader]


def open_loader(recipe, **overrides):
    return stoker.Loader(recipe, rank=0, world_size=1, overrides=overrides)


def seen(batches) -> list[dict]:
    return [digests(batch) for batch in batches]


class Model(torch.nn.Module):
    """Learns one number, and remembers the batches that it was given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.given = []

    def forward(self, num_items_in_batch=None, **batch):  # noqa: ARG002
        self.given.append(digests(batch))
        mean = batch["pixel_values"].mean() + batch["input_ids"].float().mean() / 100
        return {"loss": (self.weight * mean).square().sum()}


# The data loader.


def test_each_loop_over_a_data_loader_is_a_whole_pass(recipe, straight):
    data = DataLoader(open_loader(recipe))
    assert len(data) == 5
    assert seen(data) + seen(data) == straight
    # A trainer that knows the length does not ask for what would come after it.
    counted = [batch for _ in range(2) for _, batch in zip(range(5), data, strict=False)]
    assert seen(counted) == straight


def test_a_data_loader_has_what_trainers_ask_of_one(recipe):
    data = DataLoader(open_loader(recipe))
    assert isinstance(data, torch.utils.data.DataLoader)
    assert data.num_workers == 0
    assert not data.drop_last
    for holder in (data, data.batch_sampler):
        holder.set_epoch(3)
    endless = DataLoader(open_loader(recipe, **ENDLESS))
    for sized in (endless, endless.batch_sampler, Batches(endless.loader)):
        with pytest.raises(TypeError, match=r"plan\.epochs"):
            len(sized)
    assert not endless.end_of_dataloader


@pytest.mark.parametrize("done", range(11))
def test_the_state_is_of_the_batch_that_was_given_last(recipe, straight, done):
    data = DataLoader(open_loader(recipe))
    states = [data.state_dict()]
    states += [data.state_dict() for _ in range(2) for _ in data]
    rest = DataLoader(open_loader(recipe))
    rest.load_state_dict(states[done])
    left = -done % 5 or 5  # a loop is never empty: after the last batch comes the next pass
    assert seen(rest) == straight[done % 5 :][:left]
    assert data.end_of_dataloader
    with open_loader(recipe) as plain:
        plain.load_state_dict(states[done])
        remaining = straight[done : 5 if done <= 5 else 10]
        assert seen(batch.to("cpu") for batch in plain) == remaining, "of the pass, for a loader"


def test_another_data_loader_goes_on_where_the_first_stopped(recipe, straight):
    loader = AlwaysReady(open_loader(recipe))
    first = seen(islice(DataLoader(loader), 2))
    rest = DataLoader(loader)
    assert first + seen(rest) + seen(rest) == straight


def test_skipping_batches_costs_nothing_after_a_state_and_is_done_without(recipe, straight):
    data = DataLoader(open_loader(recipe))
    assert seen(accelerate.skip_first_batches(data, 3)) == straight[3:5]
    state = next((data.state_dict() for number, _ in enumerate(data) if number == 2), None)
    for skipped in (0, 2, 3, 4):  # trainers count otherwise where the number of ranks changes
        data = DataLoader(open_loader(recipe))
        data.load_state_dict(state)
        assert seen(accelerate.skip_first_batches(data, skipped)) == straight[3:5]
        samples = data.loader.report().samples
        assert samples == 10, "what was trained on is not made again"


def test_batches_are_skipped_in_each_pass_and_the_end_stays_the_end(recipe, straight):
    data = DataLoader(open_loader(recipe))
    for _ in range(2):
        assert seen(data) == straight[:5]
        assert seen(accelerate.skip_first_batches(data, 2)) == straight[2:5]
        skipped = iter(accelerate.skip_first_batches(data, 3))
        assert seen([next(skipped), next(skipped)]) == straight[3:5]
        for _ in range(3):
            assert next(skipped, None) is None
        counted = [batch for _, batch in zip(range(5), data, strict=False)]
        assert seen(counted) == straight[:5]
        assert seen(accelerate.skip_first_batches(data, 4)) == straight[4:5]


def test_worker_processes_are_refused(recipe):
    for dataset, how in (
        (Batches(open_loader(recipe)), {"batch_size": None}),
        (DataLoader(open_loader(recipe)).dataset, {"batch_sampler": [[0], [1]]}),
    ):
        data = torch.utils.data.DataLoader(dataset, num_workers=2, **how)
        with pytest.raises(RuntimeError, match=r"num_workers=2, each.*set num_workers=0"):
            next(iter(data))


def test_an_iterable_dataset_has_the_batches(recipe, straight):
    dataset = Batches(open_loader(recipe))
    assert len(dataset) == 5
    assert seen(torch.utils.data.DataLoader(dataset, batch_size=None)) == straight[:5]


@pytest.mark.parametrize("take", [DataLoader, Batches, torchtitan.DataLoader])
def test_what_is_no_loader_is_refused(take):
    with pytest.raises(TypeError, match=r"stoker\.Loader or .*RayLoader is expected, not list"):
        take([1, 2])


def test_pairs_are_of_inputs_and_labels(recipe, straight):
    data = torchtitan.DataLoader(open_loader(recipe))
    assert len(data) == 5
    pairs = [(inputs | {"labels": labels}, data.state_dict()) for inputs, labels in data]
    assert seen(pair for pair, _ in pairs) == straight[:5]
    rest = torchtitan.DataLoader(open_loader(recipe))
    rest.load_state_dict(pairs[1][1])
    assert seen(inputs | {"labels": labels} for inputs, labels in rest) == straight[2:5]


# Accelerate.


def test_accelerate_takes_a_data_loader_as_it_is_and_steps_at_the_end_of_a_pass(recipe):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = open_loader(recipe)
    model, data, plain = accelerator.prepare(Model(), DataLoader(loader), loader)
    assert type(data) is DataLoader
    assert plain is loader
    for _ in range(2):
        steps = []
        for _ in data:
            with accelerator.accumulate(model):
                steps.append(accelerator.sync_gradients)
        assert steps == [False, True, False, True, True]
    assert not accelerator.gradient_state.in_dataloader


# transformers.


class Trainer(TrainerMixin, transformers.Trainer):
    pass


def trainer(loader, folder, kind=Trainer, **arguments):
    arguments = {
        "output_dir": str(folder), "num_train_epochs": 2, "gradient_accumulation_steps": 2,
        "save_steps": 1, "use_cpu": True, "report_to": [], "disable_tqdm": True, **arguments,
    }  # fmt: skip
    torch.manual_seed(0)
    return kind(
        model=Model(), args=transformers.TrainingArguments(**arguments), train_dataset=loader
    )


def test_transformers_trainer_goes_on_from_each_of_its_checkpoints(recipe, straight, tmp_path):
    """5 batches, 2 of them a step: the last step of each epoch has one."""
    whole = trainer(open_loader(recipe), tmp_path / "whole")
    whole.train()
    assert whole.model.given == straight
    for step, trained in enumerate([2, 4, 5, 7, 9], 1):
        rest = trainer(open_loader(recipe), tmp_path / "rest", save_strategy="no")
        rest.train(resume_from_checkpoint=str(tmp_path / f"whole/checkpoint-{step}"))
        assert rest.model.given == straight[trained:]
        assert torch.equal(rest.model.weight, whole.model.weight)
        assert rest.state.epoch == whole.state.epoch == 2


def test_a_run_that_was_resumed_is_resumed(recipe, straight, tmp_path):
    trainer(open_loader(recipe), tmp_path, max_steps=2, save_steps=2).train()
    restored = {"restore_callback_states_from_checkpoint": True}
    rest = trainer(open_loader(recipe), tmp_path, **restored)
    rest.train(resume_from_checkpoint=True)
    assert rest.model.given == straight[4:]
    again = trainer(open_loader(recipe), tmp_path, **restored)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert again.model.given == straight[7:]


def test_nothing_is_lost_where_the_trainer_does_not_skip(recipe, straight, tmp_path):
    trainer(open_loader(recipe), tmp_path, max_steps=2, save_steps=2).train()
    rest = trainer(open_loader(recipe), tmp_path, ignore_data_skip=True)
    rest.train(resume_from_checkpoint=True)
    assert rest.model.given == straight[4:]


def test_an_endless_loader_needs_a_number_of_steps(recipe, tmp_path):
    endless = trainer(open_loader(recipe, **ENDLESS), tmp_path)
    with pytest.raises(ValueError, match="max_steps must be set"):
        endless.train()
    first = trainer(open_loader(recipe, **ENDLESS), tmp_path, max_steps=4, save_steps=3)
    first.train()
    rest = trainer(open_loader(recipe, **ENDLESS), tmp_path, max_steps=4)
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert rest.model.given == first.model.given[6:]
    assert len(rest.model.given) == 2


def test_a_trainer_that_trains_again_loses_no_batch(recipe, tmp_path):
    with open_loader(recipe, **ENDLESS) as loader:
        expected = seen(batch.to("cpu") for batch in islice(loader, 8))
    again = trainer(AlwaysReady(open_loader(recipe, **ENDLESS)), tmp_path, max_steps=2)
    for _ in range(2):
        again.train()
    assert again.model.given == expected


def test_a_checkpoint_without_a_loaders_state_is_refused(recipe, tmp_path):
    class Plain(transformers.Trainer):
        def get_train_dataloader(self):
            return DataLoader(open_loader(recipe))

    trainer([1], tmp_path, Plain, max_steps=1).train()
    with pytest.raises(ValueError, match=r"step 1 has no state of a loader.*resume from one that"):
        trainer(open_loader(recipe), tmp_path).train(resume_from_checkpoint=True)


def test_a_checkpoint_of_another_recipe_is_refused(recipe, tmp_path):
    trainer(open_loader(recipe), tmp_path, max_steps=1).train()
    other = trainer(open_loader(recipe, **{"plan.seed": 7}), tmp_path)
    with pytest.raises(stoker.CursorError, match=r"plan\.seed"):
        other.train(resume_from_checkpoint=True)


def test_a_loader_of_other_ranks_than_the_trainers_is_refused(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"feeds 2 data-parallel ranks, the trainer has 1, so"):
        trainer(stoker.Loader(recipe, rank=0, world_size=2), tmp_path).train()


def test_a_trainer_may_have_nothing_to_train_on(recipe, tmp_path):
    without = trainer(None, tmp_path)
    without.evaluate(open_loader(recipe))
    assert len(without.model.given) == 5
    with pytest.raises(ValueError, match=r"no train_dataset: give the trainer a stoker\.Loader"):
        without.train()


def test_several_gpus_of_one_process_are_refused(recipe, tmp_path, monkeypatch):
    two = trainer(open_loader(recipe), tmp_path)
    monkeypatch.setattr(two.args, "_n_gpu", 2)
    with pytest.raises(RuntimeError, match=r"over 2 GPUs.*start one process for each"):
        two.get_train_dataloader()


def test_the_callback_alone_says_what_it_needs(tmp_path):
    class Plain(transformers.Trainer):
        def get_train_dataloader(self):
            return torch.utils.data.DataLoader([1])

    plain = trainer([1], tmp_path, Plain)
    plain.add_callback(LoaderState())
    with pytest.raises(TypeError, match=r"gives a stoker.trainers.DataLoader, not DataLoader: put"):
        plain.train()


def test_transformers_trainer_evaluates_whole_passes(recipe, straight, tmp_path):
    both = Trainer(
        model=Model(),
        args=transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[]),
        train_dataset=open_loader(recipe),
        eval_dataset=open_loader(recipe),
    )
    for _ in range(2):
        both.evaluate()
        both.evaluate(open_loader(recipe))
    assert both.model.given == straight * 2
