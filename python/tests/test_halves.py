"""The two halves of a loader, and batches that travel between processes."""

from __future__ import annotations

import pickle
from threading import Thread

import numpy as np
import pytest
import shards
import stoker
import torch
from stoker._native import Front, Maker
from stoker.torch import tensors


def parts(batch) -> tuple[bytes, list[pickle.PickleBuffer]]:
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(batch, protocol=5, buffer_callback=buffers.append), buffers


@pytest.fixture
def maker(recipe):
    maker = Maker(recipe)
    yield maker
    maker.close()


@pytest.fixture
def shared(maker):
    """A batch over memory that is not its own, and that memory."""
    data, (buffer,) = parts(maker.make(0))
    memory = bytes(buffer)
    return pickle.loads(data, buffers=[memory]), memory


def equal(one, other) -> bool:
    if one.scalars != other.scalars:
        return False
    one, other = tensors(one), tensors(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_batch_survives_pickling_by_every_protocol(recipe, protocol):
    with stoker.Loader(recipe) as loader:
        batch = next(loader)
    copy = pickle.loads(pickle.dumps(batch, protocol))
    assert equal(copy, batch)
    assert (copy.name, copy.sequence, copy.samples) == (batch.name, batch.sequence, batch.samples)
    assert copy.state_dict() == batch.state_dict()
    assert copy.finish == batch.finish
    assert (batch.shared, copy.shared) == (False, True)


def test_out_of_band_no_byte_of_a_tensor_is_copied(recipe):
    with stoker.Loader(recipe) as loader:
        batch = next(loader)
    data, (buffer,) = parts(batch)
    assert len(data) < 4096
    sent = np.frombuffer(buffer, np.uint8)
    assert np.shares_memory(sent, batch.numpy()["pixel_values"])
    assert not sent.flags.writeable
    copy = pickle.loads(data, buffers=[buffer])
    for name, array in copy.numpy().items():
        assert np.shares_memory(array, sent), name


def test_a_shared_batch_outlives_all_but_its_memory(shared):
    batch, memory = shared
    pixels = batch.torch()["pixel_values"]
    before = pixels.clone()
    del batch, memory
    assert torch.equal(pixels, before)


def test_no_write_to_a_shared_batch_is_silent(shared):
    batch, memory = shared
    before = bytearray(memory)
    for array in batch.numpy().values():
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert memory == before, "NumPy refuses before it writes"
    for tensor in batch.torch().values():
        # torch refuses too, but only once it has written.
        for write in (tensor.zero_, lambda t=tensor: t.view(-1).add_(1)):
            with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
                write()


@pytest.mark.parametrize("pixels", ["f32", "u8"])
def test_to_gives_ordinary_tensors_of_a_shared_batch(recipe, pixels):
    maker = Maker(recipe, overrides={"vision.pixels": pixels})
    made = maker.make(0)
    data, (buffer,) = parts(made)
    memory = bytes(buffer)
    batch = pickle.loads(data, buffers=[memory])
    tensors = batch.to("cpu")
    for name, tensor in made.to("cpu").items():
        assert torch.equal(tensors[name], tensor)
        assert not tensors[name].is_inference()
        tensors[name].zero_()
    assert memory == bytes(buffer), "the writes went to private copies"
    maker.close()


def test_a_broken_header_is_refused():
    with pytest.raises(ValueError, match="this is no batch's header"):
        stoker._native._batch("{}", b"")


def test_many_threads_may_ask_a_maker(recipe, maker):
    made = {}

    def make(sequence: int) -> None:
        made[sequence] = maker.make(sequence, range(sequence, 6))

    threads = [Thread(target=make, args=(sequence,)) for sequence in reversed(range(6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with stoker.Loader(recipe) as loader:
        for batch in loader:
            assert equal(made[batch.sequence], batch)


def test_a_front_is_a_loader_without_the_making(recipe, maker):
    front = Front(recipe, rank=1, world_size=2)
    loader = stoker.Loader(recipe, rank=1, world_size=2)
    assert len(front) == len(loader)
    halfway = None
    for batch in loader:
        mine = front.hand_over(maker.make(front.sequence_at(0)), blocked=0.5)
        assert equal(mine, batch)
        assert mine.state_dict() == batch.state_dict() == front.state_dict()
        halfway = halfway or front.state_dict()
    assert front.sequence_at(0) is None
    assert not front.ended
    front.end()
    assert front.ended
    assert front.state_dict() == loader.state_dict()
    assert front.state_dict(batches_ago=0) == batch.state_dict()
    assert front.report().samples == loader.report().samples
    front.load_state_dict(halfway)
    assert front.state_dict() == halfway
    front.rewind()
    assert front.sequence_at(0) == 1
    with pytest.raises(stoker.BugError, match="comes next"):
        front.hand_over(maker.make(0), blocked=0.0)
    loader.close()


def test_a_maker_is_told_where_the_window_of_packed_samples_begins(recipe):
    del recipe["plan"]["epochs"]
    assert Front(recipe).window() is None
    recipe["pack"] = {"max-tokens": 400}
    front, told, untold = Front(recipe), Maker(recipe), Maker(recipe)
    assert front.window() == (0, 0)
    for sequence in range(66):
        batch = told.make(sequence, (), front.window())
        front.hand_over(batch, blocked=0.0)
    number, position = front.window()
    assert number == 1
    assert position > 64, "64 batches are the first window, of more than one sample each"
    assert front.state_dict()["window_start"] == position
    resumed = Front(recipe)
    resumed.load_state_dict(front.state_dict())
    assert resumed.window() == (number, position)
    assert equal(told.make(66, (), resumed.window()), untold.make(66))
    for maker in (told, untold):
        maker.close()


def test_waiting_for_a_maker_ends_when_it_is_closed(stalled):
    maker = Maker(stalled)
    errors = []

    def wait() -> None:
        try:
            maker.make(0)
        except stoker.StoppedError as error:
            errors.append(error)

    thread = Thread(target=wait)
    thread.start()
    thread.join(timeout=0.3)
    assert thread.is_alive()
    maker.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert errors


def test_the_index_of_one_serves_another(recipe, tmp_path):
    source = {**recipe, "dataset": {**recipe["dataset"], "index-dir": str(tmp_path / "one")}}
    [files] = Front(source).index_files()
    assert files
    (tmp_path / "two").mkdir()
    for file in files:
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "two").iterdir()}
    source["dataset"]["index-dir"] = str(tmp_path / "two")
    assert Front(source).index_files()[0][0].parent == tmp_path / "two"
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "two").iterdir()}


@pytest.mark.parametrize("kind", shards.WRITERS)
def test_both_halves_over_shards_are_a_loader_wherever_their_index_lies(
    recipe, folder, tmp_path, kind
):
    """What was copied beside the index goes with it, and serves in another folder."""
    (tmp_path / "data").mkdir()
    source = shards.WRITERS[kind](folder, tmp_path / "data")

    def over(place):
        return {**recipe, "dataset": {"source": source, "index-dir": str(place)}}

    front = Front(over(tmp_path / "one"))
    [files] = front.index_files()
    ends = [file.suffix for file in files]
    assert ends.count(".stoker-index") == {"tar": 3, "parquet": 2, "mds": 2}[kind]
    assert ends.count(".stoker-lines") == {"tar": 1, "parquet": 2, "mds": 0}[kind]
    (tmp_path / "two").mkdir()
    for file in files:
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "two").iterdir()}
    maker = Maker(over(tmp_path / "two"))
    with stoker.Loader(over(tmp_path / "one")) as loader:
        for batch in loader:
            made = front.hand_over(maker.make(front.sequence_at(0)), blocked=0.0)
            assert equal(made, batch)
            assert made.state_dict() == batch.state_dict()
    assert front.sequence_at(0) is None
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "two").iterdir()}
    maker.close()


def test_an_index_that_lies_beside_its_shards_is_not_sent(recipe, folder, tmp_path):
    source = shards.WRITERS["tar"](folder, tmp_path)
    elsewhere = {"name": "b", "source": recipe["dataset"]["source"], "index-dir": str(tmp_path)}
    datasets = [{"name": "a", "source": source}, elsewhere]
    many = {key: value for key, value in recipe.items() if key != "dataset"}
    beside, sent = Front({**many, "datasets": datasets}).index_files()
    assert beside == []
    assert [file.suffix for file in sent] == [".stoker-index"]
