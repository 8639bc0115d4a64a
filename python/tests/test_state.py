"""States: small, exact wherever they are taken, and refused where they do not fit."""

from __future__ import annotations

import copy
import hashlib
import json
import queue
import threading
import time
from collections import deque

import pytest
import stoker
import torch
from schedules.jobs import write_model
from torch.distributed import checkpoint
from torch.distributed.checkpoint.stateful import Stateful


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One that is quick to open: it is opened often here."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def recipe(recipe, model):
    recipe["model"] = str(model)
    recipe["vision"]["family"] = "qwen3-vl"
    return recipe


def digest(batch: stoker.Batch) -> tuple:
    """The same for two batches if all their bytes are, and their place."""
    hashed = hashlib.sha256()
    for name, array in batch.numpy().items():
        hashed.update(name.encode() + array.tobytes())
    return batch.sequence, hashed.hexdigest()


def digests(loader) -> list[tuple]:
    return [digest(batch) for batch in loader]


def stored(state: dict) -> dict:
    """A state that was kept in a file."""
    return json.loads(json.dumps(state))


def resumed(recipe: dict, state: dict, **arguments) -> list[tuple]:
    with stoker.Loader(recipe, **arguments) as loader:
        loader.load_state_dict(stored(state))
        return digests(loader)


def test_a_state_is_below_4_kb_for_64_lanes_wherever_it_is_taken(recipe):
    recipe["plan"] = {"lanes": 64, "seed": (1 << 63) - 1}
    loader = stoker.Loader(recipe, rank=63, world_size=64)
    far = loader.state_dict() | {"batches": 1 << 40, "samples": 1 << 40, "bad_samples": 1 << 30}
    loader.load_state_dict(far)
    next(loader)
    begun = time.perf_counter()
    for _ in range(100):
        state = loader.state_dict()
    print(f"state_dict() took {(time.perf_counter() - begun) / 100 * 1e6:.0f} µs")
    assert state["batches"] == (1 << 40) + 64
    assert len(json.dumps(state)) < 4096


def test_right_after_loading_the_state_is_what_was_loaded(recipe):
    with stoker.Loader(recipe, rank=1, world_size=2) as loader:
        for _ in range(2):
            next(loader)
        state = stored(loader.state_dict())
        rest = digests(loader)
    with stoker.Loader(recipe, rank=1, world_size=2) as loader:
        for _ in range(3):  # again and again, also with batches under way
            loader.load_state_dict(state)
            assert loader.state_dict() == state
        next(loader)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        assert digests(loader) == rest


def test_a_run_may_be_resumed_over_and_over_after_every_batch(recipe):
    with stoker.Loader(recipe) as loader:
        straight = digests(loader)
    seen, state = [], None
    while len(seen) < len(straight):
        with stoker.Loader(recipe) as loader:
            if state is not None:
                loader.load_state_dict(state)
            seen.append(digest(next(loader)))
            state = stored(loader.state_dict())
    assert seen == straight


def test_states_at_the_edges_of_an_epoch_lie_in_one_stream(recipe):
    """7 samples a batch: no epoch of 24 ends with a batch."""
    del recipe["plan"]["epochs"]
    recipe["pack"]["batch-size"] = 7
    with stoker.Loader(recipe) as loader:
        states = [loader.state_dict()]
        straight = []
        for batch in loader:
            straight.append((digest(batch), [row for _, row in batch.samples]))
            states.append(loader.state_dict())
            if len(straight) == 14:
                break
    rows = [row for _, samples in straight for row in samples]
    for epoch in range(4):
        assert sorted(rows[epoch * 24 : (epoch + 1) * 24]) == list(range(24))
    for done in (3, 4, 6, 7, 10, 11):  # the batches before and after each edge
        with stoker.Loader(recipe) as loader:
            loader.load_state_dict(stored(states[done]))
            assert digest(next(loader)) == straight[done][0]


def test_a_run_that_is_gone_through_again_may_be_resumed_before_and_after_its_end(recipe):
    """`for epoch in range(…): for batch in loader: …`, saved in the inner loop or the outer."""
    with stoker.Loader(recipe) as loader:
        straight = digests(loader)
        end = loader.state_dict()
        last = loader.state_dict(batches_ago=0)
        assert digests(loader) == straight, "it begins anew"
        assert loader.state_dict() == end
    assert resumed(recipe, end) == straight, "of an epoch that is over comes the next one"
    with stoker.Loader(recipe) as loader:
        loader.load_state_dict(last)
        assert digests(loader) == [], "the epoch is at its end"
        assert digests(loader) == straight
    # The same run, longer: what comes after the end is its second epoch.
    recipe["plan"]["epochs"] = 2
    with stoker.Loader(recipe) as loader:
        whole = digests(loader)
    assert straight + resumed(recipe, end) == straight + resumed(recipe, last) == whole


def one_ahead(loader, ahead: int = 1):
    """What trainers do that must know the last batch before they train on it."""
    held = deque()
    for batch in loader:
        held.append(batch)
        if len(held) > ahead:
            yield held.popleft(), len(held)
    while held:
        yield held.popleft(), len(held)


@pytest.mark.parametrize("ahead", [1, 2, 9])
def test_a_trainer_that_looks_ahead_saves_the_state_of_some_batches_ago(recipe, ahead):
    with stoker.Loader(recipe) as loader:
        straight = digests(loader)
    with stoker.Loader(recipe) as loader:
        trained = []
        for batch, held in one_ahead(loader, ahead):
            trained.append(digest(batch))
            state = loader.state_dict(batches_ago=held)
            assert state == batch.state_dict()
            assert trained + resumed(recipe, state) == straight
    assert trained == straight


def test_a_trainer_that_looks_over_the_end_saves_the_state_before_it(recipe):
    """Two passes of one loader, and batches of the first are still held in the second."""
    with stoker.Loader(recipe) as loader:
        straight = digests(loader)
        held = deque(digest(batch) for batch in loader)  # all of the second pass
        held.append(digest(next(iter(loader))))  # and one of the third
        ago = [loader.state_dict(batches_ago=count) for count in range(4)]
    assert [state["batches"] for state in ago] == [1, 0, 5, 4]
    assert resumed(recipe, ago[2]) == straight[5:] == list(held)[-2:-1]


def test_a_thread_that_fetches_ahead_passes_each_batches_state_on(recipe):
    with stoker.Loader(recipe) as loader:
        straight = digests(loader)
    fetched: queue.Queue = queue.Queue(maxsize=3)

    def fetch(loader):
        for batch in loader:
            fetched.put((digest(batch), batch.state_dict()))

    with stoker.Loader(recipe) as loader:
        thread = threading.Thread(target=fetch, args=(loader,))
        thread.start()
        trained = [fetched.get() for _ in range(len(loader))]
        thread.join()
    for done, (_, state) in enumerate(trained):
        assert resumed(recipe, state) == straight[done + 1 :]


def test_accelerate_looks_one_batch_ahead_until_the_end(recipe):
    """As the guide says it does."""
    import accelerate

    settings = accelerate.utils.DataLoaderConfiguration(dispatch_batches=False)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    with stoker.Loader(recipe, rank=0, world_size=1) as loader:

        class Batches(torch.utils.data.IterableDataset):
            def __iter__(self):
                for batch in loader:
                    yield {"sequence": torch.tensor(batch.sequence)}

        data = accelerator.prepare(torch.utils.data.DataLoader(Batches(), batch_size=None))
        trained = 0
        for batch in data:
            state = loader.state_dict(batches_ago=0 if data.end_of_dataloader else 1)
            assert batch["sequence"].item() + 1 == state["batches"]
            assert not state["ended"]
            trained += 1
    assert trained == 6


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torchs_distributed_checkpoints_take_a_loader_as_it_is(recipe, tmp_path):
    with stoker.Loader(recipe) as loader:
        assert isinstance(loader, Stateful)
        straight = digests(loader)
        next(iter(loader))
        next(loader)
        checkpoint.save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
    with stoker.Loader(recipe) as loader:
        checkpoint.load({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
        assert digests(loader) == straight[2:]


def test_a_state_of_so_long_ago_is_refused(recipe):
    with stoker.Loader(recipe) as loader:
        next(loader)
        next(loader)
        assert loader.state_dict(batches_ago=2)["batches"] == 0
        for ago in (3, 2000, -1):
            with pytest.raises(
                ValueError, match=rf"batches_ago={ago}: it counts batches that were"
            ):
                loader.state_dict(batches_ago=ago)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(ValueError, match="since the loader was made or its state was loaded"):
            loader.state_dict(batches_ago=1)


DAMAGES = {
    "version": [7, "1", None],
    "batches": [-1, 0.5, "3", None, 1 << 60, [3]],
    "samples": [-1, "x", None, 1 << 60],
    "bad_samples": [-1, {}, None, 1 << 60],
    "ended": [1, "no", None],
    "plan": [5, "plan", [], {"plan.seed": 5}, {}],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in DAMAGES.items() for value in values],
)
def test_a_damaged_state_is_refused_by_the_name_of_the_field(recipe, field, value):
    with stoker.Loader(recipe) as loader:
        straight = digest(next(loader))
        state = loader.state_dict()
        with pytest.raises(stoker.CursorError) as caught:
            loader.load_state_dict(state | {field: value})
        # An empty plan lacks the first of its fields.
        assert caught.value.field == ("compat" if value == {} and field == "plan" else field)
        del state[field]
        with pytest.raises(stoker.CursorError, match=f"{field} is absent there") as caught:
            loader.load_state_dict(state)
        assert caught.value.field == field
        assert loader.state_dict()["batches"] == 1, "what is refused changes nothing"
        loader.load_state_dict(loader.state_dict(batches_ago=1))
        assert digest(next(loader)) == straight


@pytest.mark.parametrize(
    "state", [None, 5, [], "state", {1, 2}, {"batches": float("nan")}, object()]
)
def test_what_is_no_state_at_all_is_refused(recipe, state):
    with (
        stoker.Loader(recipe) as loader,
        pytest.raises(stoker.CursorError, match=r"can't be read.*was not saved by stoker"),
    ):
        loader.load_state_dict(state)


def test_a_state_of_another_loader_is_refused(recipe):
    """What a `StatefulDataLoader` saves."""
    foreign = {"_snapshot": {"_snapshot_step": 3}, "_steps_since_snapshot": 0}
    with (
        stoker.Loader(recipe) as loader,
        pytest.raises(stoker.CursorError, match="version is absent there") as caught,
    ):
        loader.load_state_dict(foreign)
    assert caught.value.field == "version"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"plan.seed": 1}, "plan.seed"),
        ({"plan.lanes": 4}, "plan.lanes"),
        ({"plan.shuffle": "none"}, "plan.shuffle"),
        ({"pack.batch-size": 3}, "pack.batch-size"),
        ({"vision.max-pixels": 32768}, "vision"),
        ({"text.train-newline": False}, "text"),
        ({"engine.on-bad-sample": "stop"}, "engine.on-bad-sample"),
    ],
)
def test_a_state_of_another_recipe_is_refused_by_the_name_of_what_differs(recipe, change, field):
    with stoker.Loader(recipe) as loader:
        state = loader.state_dict()
    with stoker.Loader(recipe, overrides=change) as loader:
        with pytest.raises(stoker.CursorError, match="does not fit") as caught:
            loader.load_state_dict(state)
        assert caught.value.field == field


def test_a_state_of_other_data_is_refused(recipe, tmp_path):
    with stoker.Loader(recipe) as loader:
        state = loader.state_dict()
    recipe = copy.deepcopy(recipe)
    source = tmp_path / "chats.jsonl"
    line = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    source.write_text(json.dumps(line) + "\n")
    recipe["dataset"]["source"] = str(source)
    with stoker.Loader(recipe) as loader:
        with pytest.raises(stoker.CursorError) as caught:
            loader.load_state_dict(state)
        assert caught.value.field.startswith("dataset")
