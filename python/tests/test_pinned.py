"""Blocks are registered with CUDA once, and unregistered once before they are unmapped."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import threading
import time
import weakref

import pytest
import stoker
from conftest import photo, sample
from device_double import Cudart, DoubleStreams, copied, mapped, pinned
from stoker._prefetch import Prefetcher
from trainer_runs import digests


def blocks(batch) -> int:
    """The address of the block that a batch begins."""
    return min(tensor.data_ptr() for tensor in batch.torch().values())


def settle() -> None:
    """Lets Python do what was left to it."""
    gc.collect()
    for _ in range(100):
        time.sleep(0)


def test_each_block_is_registered_once_and_unregistered_once(quick):
    quick["plan"]["epochs"] = 3
    cudart = Cudart()
    with stoker.Loader(quick) as loader:
        pins, addresses = pinned(cudart), []
        for batch in loader:
            addresses.append(blocks(batch))
            pins.pin(batch)
            pins.pin(batch)
        assert len(addresses) == 18
        assert set(cudart.registered) == set(addresses)
        assert len(cudart.registered) < len(addresses), "blocks are used again"
        del batch
    settle()
    assert sorted(cudart.unregistered) == sorted(cudart.registered)
    assert not cudart.known
    assert not cudart.unknown


def test_a_block_that_makes_room_for_a_larger_one_is_unregistered_first(quick, tmp_path):
    # Rising sizes: none fits into the block of the batch before.
    lines = []
    for row in range(8):
        photo(row).resize((64 + 256 * row, 512)).save(tmp_path / f"{row}.png")
        lines.append(json.dumps(sample(row, [f"{row}.png"])) + "\n")
    (tmp_path / "chats.jsonl").write_text("".join(lines))
    quick["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    quick["plan"] = {"epochs": 1, "lanes": 1, "shuffle": "none"}
    quick["vision"] |= {"max-pixels": 2048 * 512}
    quick["pack"]["batch-size"] = 1
    quick["engine"] |= {"memory": "64MiB", "prefetch": 0}
    cudart = Cudart()
    pins = pinned(cudart)
    with stoker.Loader(quick) as loader:
        for batch in loader:
            pins.pin(batch)
        del batch
        assert cudart.unregistered, "before the end"
        assert cudart.known
    settle()
    assert sorted(cudart.unregistered) == sorted(cudart.registered)


@pytest.mark.parametrize("end", ["closed", "dropped", "closed and dropped"])
def test_a_batch_that_outlives_its_loader_stays_registered_until_it_goes(quick, end):
    cudart = Cudart()
    loader = stoker.Loader(quick)
    pins = pinned(cudart)
    held = [next(loader), next(loader)]
    for batch in held:
        pins.pin(batch)
    addresses = [blocks(batch) for batch in held]
    contents = digests(held[0].torch())
    view = held[1].torch()["input_ids"]
    del batch
    if "closed" in end:
        loader.close()
    if "dropped" in end:
        del loader
    settle()
    assert cudart.unregistered == []
    assert digests(held[0].torch()) == contents
    del pins
    held.clear()
    settle()
    assert cudart.unregistered == addresses[:1]
    del view
    settle()
    assert cudart.unregistered == addresses


def test_let_go_of_on_another_thread_it_is_unregistered_by_the_main_one(quick):
    cudart = Cudart()
    loader = stoker.Loader(quick)
    pins = pinned(cudart)
    held = [next(loader)]
    pins.pin(held[0])
    loader.close()
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    settle()
    assert cudart.unregistered == cudart.registered
    assert cudart.threads == {threading.main_thread()}


def test_a_refusal_is_told_once_and_batches_are_right_without(quick, monkeypatch):
    cudart = Cudart(register_status=2)
    streams = DoubleStreams(cudart)
    copied(monkeypatch, streams)
    with stoker.Loader(quick) as loader:
        expected = [digests(batch.to("cpu")) for batch in loader]
    pins = pinned(cudart)
    with (
        pytest.warns(
            RuntimeWarning, match=r"cudaError 2: error 2 of a double.*engine\.memory"
        ) as told,
        Prefetcher(stoker.Loader(quick), "cpu", _streams=streams, _pinned=pins) as batches,
    ):
        assert [digests(batch) for batch in batches] == expected
    assert len([warning for warning in told if warning.category is RuntimeWarning]) == 1
    settle()
    assert len(cudart.registered) == 1
    assert cudart.unregistered == []


def test_what_can_not_be_unregistered_stays_mapped(quick, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(str(what.exc_value)))
    cudart = Cudart(unregister_status=4)
    with stoker.Loader(quick) as loader:
        batch = next(loader)
        pinned(cudart).pin(batch)
        address = blocks(batch)
        del batch
    settle()
    assert cudart.unregistered == [address]
    assert mapped(address)
    assert cudart.last_error == 0, "it would be taken for one of what is launched next"
    assert told == [
        "pinned memory was not given back: cudaError 4: error 4 of a double; it stays mapped"
    ]


class Interrupted(Cudart):
    """Ctrl-C comes within one of its calls, before or after what it does."""

    def __init__(self, call: str, when: str) -> None:
        super().__init__()
        self._due = call, when

    def cudaHostRegister(self, *arguments: int) -> int:  # noqa: N802
        return self._cut("register", super().cudaHostRegister, *arguments)

    def cudaHostUnregister(self, *arguments: int) -> int:  # noqa: N802
        return self._cut("unregister", super().cudaHostUnregister, *arguments)

    def _cut(self, call: str, work, *arguments: int) -> int:
        self._signal(call, "before")
        status = work(*arguments)
        self._signal(call, "after")
        return status

    def _signal(self, *place: str) -> None:
        if self._due == place:
            self._due = "", ""
            raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_block_that_ctrl_c_left_in_doubt_is_unregistered_before_it_goes(quick, monkeypatch, when):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    cudart = Interrupted("register", when)
    with stoker.Loader(quick) as loader:
        batch = next(loader)
        address = blocks(batch)
        with pytest.raises(KeyboardInterrupt):
            pinned(cudart).pin(batch)
        del batch
    settle()
    asked = cudart.unknown if when == "before" else cudart.unregistered
    assert asked == [address]
    assert (cudart.known, cudart.last_error, told) == ({}, 0, [])


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_while_a_block_is_unregistered_is_heard_when_that_is_done(quick, monkeypatch, when):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    cudart = Interrupted("unregister", when)
    with stoker.Loader(quick) as loader:
        batch = next(loader)
        pinned(cudart).pin(batch)
        address = blocks(batch)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        del batch
        settle()
    assert cudart.unregistered == [address]
    assert (cudart.known, cudart.last_error, told) == ({}, 0, [])


def test_blocks_are_unregistered_while_the_main_thread_waits_for_a_batch(quick, stalled):
    cudart = Cudart()
    with stoker.Loader(quick) as loader:
        held = [next(loader)]
        pinned(cudart).pin(held[0])
    seen = []
    with stoker.Loader(stalled) as loader:

        def let_go() -> None:
            time.sleep(0.3)  # until the main thread waits
            held.clear()
            end = time.monotonic() + 10
            while not cudart.unregistered and time.monotonic() < end:
                time.sleep(0.01)
            seen.extend(cudart.unregistered)
            loader.close()

        thread = threading.Thread(target=let_go)
        thread.start()
        with pytest.raises(stoker.StoppedError):
            next(loader)
        thread.join()
    assert seen == cudart.registered != []
    assert cudart.threads == {threading.main_thread()}


def test_memory_from_another_process_is_left_alone(quick):
    cudart = Cudart()
    with stoker.Loader(quick) as loader:
        buffers: list = []
        parts = pickle.dumps(next(loader), protocol=5, buffer_callback=buffers.append)
        batch = pickle.loads(parts, buffers=[bytes(buffer) for buffer in buffers])
        assert batch.shared
        pinned(cudart).pin(batch)
    assert cudart.registered == []


def test_a_second_one_leaves_blocks_to_the_first(quick):
    first, second = Cudart(), Cudart()
    with stoker.Loader(quick) as loader:
        batch = next(loader)
        pinned(first).pin(batch)
        pinned(second).pin(batch)
        del batch
    settle()
    assert first.unregistered == first.registered != []
    assert second.registered == []


def test_the_books_go_with_the_last_block(quick):
    cudart = Cudart()
    alive = weakref.ref(cudart)
    with stoker.Loader(quick) as loader:
        pinned(cudart).pin(next(loader))
        del cudart
        gc.collect()
        assert alive() is not None
    settle()
    assert alive() is None
