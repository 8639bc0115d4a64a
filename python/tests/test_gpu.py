"""What needs a CUDA device: it runs by itself where there is one.

    .venv/bin/pytest -v python/tests/test_gpu.py

Times are measured by `python -m bench.device`; here are none.
"""

from __future__ import annotations

import gc

import pytest
import stoker
import torch
from stoker._pinned import PORTABLE
from stoker.torch import prefetch
from test_pinned import blocks, settle

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device, and torch sees none here"
)
LONG = 1_000_000_000
"""Cycles that a stream is kept busy for: half a second."""


def bits(tensors: dict) -> dict:
    """What is compared: all tensors, on the CPU, as bytes."""
    return {
        name: value.cpu().contiguous().view(torch.uint8)
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    }


def assert_equal(one: dict, other: dict) -> None:
    one, other = bits(one), bits(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("pixels", ["f32", "bf16", "u8"])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.float16])
def test_a_batch_is_finished_on_a_gpu_as_on_the_cpu(quick, pixels, dtype):
    quick["vision"]["pixels"] = pixels
    with (
        stoker.Loader(quick) as loader,
        prefetch(stoker.Loader(quick), "cuda", dtype=dtype) as batches,
    ):
        for plain, ahead in zip(loader, batches, strict=True):
            expected = plain.to("cpu", dtype=dtype)
            assert_equal(plain.to("cuda", dtype=dtype), expected)
            assert_equal(ahead, expected)
            assert all(v.is_cuda for v in ahead.values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("compat", ["as-displayed", "transformers-path"])
def test_u8_finished_on_a_gpu_equals_f32(quick, compat):
    quick["compat"] = compat
    with (
        stoker.Loader(quick, overrides={"vision.pixels": "f32"}) as loader,
        prefetch(stoker.Loader(quick, overrides={"vision.pixels": "u8"}), "cuda") as batches,
    ):
        for plain, ahead in zip(loader, batches, strict=True):
            assert_equal(ahead, plain.to("cpu"))


def test_blocks_are_pinned_and_given_back(quick):
    quick["engine"]["prefetch"] = 0
    with stoker.Loader(quick) as loader:
        batches = prefetch(loader, "cuda")
        first = next(loader)
        assert not first.torch()["input_ids"].is_pinned()
        batches._pinned.pin(first)
        views = first.torch()
        assert all(v.is_pinned() for v in views.values() if isinstance(v, torch.Tensor))
    del first, batches, loader
    settle()
    assert views["input_ids"].is_pinned(), "it is still held"
    del views
    settle()
    fresh = torch.empty(64 << 20, dtype=torch.uint8)
    assert not fresh.is_pinned()


def test_where_cuda_refuses_to_pin_batches_are_right(quick):
    with stoker.Loader(quick) as loader:
        expected = [batch.to("cpu") for batch in loader]
    cudart = torch.cuda.cudart()
    with prefetch(stoker.Loader(quick), "cuda") as batches:
        first = next(batches.loader)
        # CUDA registers no memory twice, and here it has a page of the block.
        page = blocks(first)
        assert int(cudart.cudaHostRegister(page, 4096, PORTABLE)) == 0
        with pytest.warns(RuntimeWarning, match="could not be pinned"):
            batches._pinned.pin(first)
        assert_equal(first.to("cuda"), expected[0])
        for ahead, plain in zip(batches, expected[1:], strict=True):
            assert_equal(ahead, plain)
        assert int(cudart.cudaHostUnregister(page)) == 0


def test_the_host_does_not_wait_for_a_busy_device(quick):
    """A copy is under way behind half a second of work, and memory is held until it is done."""
    quick["engine"]["prefetch"] = 0
    with prefetch(stoker.Loader(quick), "cuda", depth=1) as batches:
        next(batches)
        torch.cuda.synchronize()
        with torch.cuda.stream(batches._stream):
            torch.cuda._sleep(LONG)
        batch = next(batches)
        assert not batches._stream.query(), "it was given while the stream was busy"
        gc.collect()
        assert batches.report().memory.leased_bytes > 0
        checked = bits(batch)  # the trainer's stream waits
        assert batches._stream.query()
        with stoker.Loader(quick) as loader:
            next(loader)
            expected = bits(next(loader).to("cpu"))
        assert all(torch.equal(checked[name], value) for name, value in expected.items())


def test_a_stream_of_ones_own_waits_too(quick):
    with (
        stoker.Loader(quick) as loader,
        prefetch(stoker.Loader(quick), "cuda", depth=3) as batches,
        torch.cuda.stream(torch.cuda.Stream()),
    ):
        for plain, ahead in zip(loader, batches, strict=True):
            assert_equal(ahead, plain.to("cpu"))


def test_memory_that_is_used_again_at_once_does_not_reach_a_copy(quick):
    """Batches are dropped while their copies are behind other work; the engine goes on."""
    quick["plan"]["epochs"] = 4
    quick["engine"]["memory"] = "16MiB"
    with stoker.Loader(quick) as loader:
        expected = [bits(batch.to("cpu")) for batch in loader]
    found = []
    with prefetch(stoker.Loader(quick), "cuda", depth=3) as batches:
        for number, batch in enumerate(batches):
            if number % 3 == 0:
                with torch.cuda.stream(batches._stream):
                    torch.cuda._sleep(LONG // 50)
            found.append(dict(batch))
    for one, other in zip(found, expected, strict=True):
        one = bits(one)
        assert all(torch.equal(one[name], value) for name, value in other.items())


def test_to_without_blocking_is_safe_from_pinned_memory(quick):
    with stoker.Loader(quick) as loader, stoker.Loader(quick) as other:
        pinned = prefetch(loader, "cuda")._pinned
        for plain in other:
            batch = next(loader)
            pinned.pin(batch)
            torch.cuda._sleep(LONG // 50)
            moved = batch.to("cuda", non_blocking=True)
            del batch
            assert_equal(moved, plain.to("cpu"))
