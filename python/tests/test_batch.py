from __future__ import annotations

import gc
from collections.abc import Mapping

import numpy as np
import pytest
import stoker
import torch


@pytest.fixture
def loader(recipe):
    with stoker.Loader(recipe) as loader:
        yield loader


def leased(loader) -> int:
    gc.collect()
    return loader.report().memory.leased_bytes


def test_a_batch_is_what_the_model_takes(loader):
    batch = next(loader)
    tensors = batch.torch()
    assert isinstance(batch, Mapping)
    assert list(batch) == list(tensors) == batch.keys()
    assert len(batch) == len(tensors)
    samples, tokens = batch["input_ids"].shape
    for name in ("input_ids", "attention_mask", "labels", "mm_token_type_ids"):
        assert tensors[name].dtype == torch.int64
        assert tensors[name].shape == (samples, tokens)
    assert tensors["position_ids"].shape == (3, samples, tokens)
    grid = tensors["image_grid_thw"]
    assert tensors["pixel_values"].shape == (int(grid.prod(1).sum()), 3 * 2 * 16 * 16)
    assert tensors["pixel_values"].dtype == torch.float32
    assert batch.nbytes == sum(t.nbytes for t in tensors.values())
    assert "nothing" not in batch
    assert batch.get("nothing") is None
    with pytest.raises(KeyError, match="nothing"):
        batch["nothing"]


@pytest.mark.parametrize("key", [0, None, ("input_ids",), b"input_ids", "\ud800"])
def test_a_key_that_is_no_name_is_absent_as_in_any_mapping(loader, key):
    batch = next(loader)
    assert key not in batch
    assert batch.get(key, 7) == 7
    with pytest.raises(KeyError) as caught:
        batch[key]
    assert caught.value.args == (key,)


def test_asarray_gives_the_memory_itself_unless_more_is_asked_for(loader):
    tensor = next(loader)["input_ids"]
    array = np.asarray(tensor)
    assert (array.dtype, array.shape) == (np.int64, tensor.shape)
    assert np.shares_memory(array, np.from_dlpack(tensor))
    assert np.shares_memory(array, np.asarray(tensor, dtype=np.int64, copy=False))
    narrow, copy = np.asarray(tensor, dtype=np.int32), np.array(tensor)
    assert narrow.dtype == np.int32
    assert np.array_equal(narrow, array)
    assert np.array_equal(copy, array)
    assert not np.shares_memory(copy, array)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(tensor, dtype=np.int32, copy=False)


def test_asarray_of_bf16_says_where_to_get_it(recipe):
    batch = next(stoker.Loader(recipe, overrides={"vision.pixels": "bf16"}))
    with pytest.raises(TypeError, match=r"bfloat16.*batch\.numpy\(\).*torch"):
        np.asarray(batch["pixel_values"])


def test_a_batch_without_images_has_no_image_keys(recipe, tmp_path):
    line = (
        '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"}]}'
    )
    (tmp_path / "chats.jsonl").write_text(f"{line}\n" * 4)
    recipe["dataset"]["source"] = str(tmp_path / "chats.jsonl")
    for pixels in ("f32", "u8"):
        batch = next(stoker.Loader(recipe, overrides={"vision.pixels": pixels}))
        for names in (batch, batch.torch(), batch.to("cpu")):
            assert "input_ids" in names
            assert "pixel_values" not in names
            assert "image_grid_thw" not in names


def test_all_views_share_the_memory(loader):
    batch = next(loader)
    arrays, tensors, again = batch.numpy(), batch.torch(), batch.torch()
    for name in batch:
        address = arrays[name].ctypes.data
        assert tensors[name].data_ptr() == again[name].data_ptr() == address
        assert torch.from_dlpack(batch[name]).data_ptr() == address
        assert np.from_dlpack(batch[name]).ctypes.data == address
        assert address % 64 == 0
    low = min(t.data_ptr() for t in tensors.values())
    high = max(t.data_ptr() + t.nbytes for t in tensors.values())
    assert high - low < batch.nbytes + 64 * len(batch), "one arena, padded to 64 bytes"
    arrays["input_ids"][0, 0] = 42
    assert tensors["input_ids"][0, 0] == 42
    assert batch.to("cpu")["pixel_values"].data_ptr() == tensors["pixel_values"].data_ptr()


def test_a_tensor_keeps_its_memory_from_being_used_again(recipe):
    loader = stoker.Loader(recipe)
    batch = next(loader)
    kept = batch.torch()["pixel_values"]
    view, before = kept[1:], kept.clone()
    del batch, kept
    for other in loader:
        assert other.torch()["pixel_values"].data_ptr() != view.data_ptr() - view[0].nbytes
    loader.close()
    del loader, other
    gc.collect()
    assert torch.equal(view, before[1:])


@pytest.mark.parametrize("view", ["numpy", "torch", "values"])
def test_memory_goes_back_exactly_when_the_last_view_goes(recipe, view):
    with stoker.Loader(recipe, overrides={"engine.prefetch": 0}) as loader:
        batch = next(loader)
        assert leased(loader) > 0
        held = getattr(batch, view)()
        del batch
        assert leased(loader) > 0
        held = list(held.values()) if isinstance(held, dict) else held
        while len(held) > 1:
            held.pop()
        assert leased(loader) > 0
        del held
        assert leased(loader) == 0


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 2)])
def test_a_capsule_nobody_takes_gives_the_memory_back(recipe, version):
    with stoker.Loader(recipe, overrides={"engine.prefetch": 0}) as loader:
        capsule = next(loader)["input_ids"].__dlpack__(max_version=version)
        versioned = version is not None and version[0] >= 1
        assert ("dltensor_versioned" in repr(capsule)) == versioned
        assert leased(loader) > 0
        del capsule
        assert leased(loader) == 0


def test_unversioned_capsules_can_be_read(loader):
    tensor = next(loader)["input_ids"]
    array = torch.utils.dlpack.from_dlpack(tensor.__dlpack__())
    assert torch.equal(array, torch.from_dlpack(tensor))


def test_what_dlpack_can_not_give_is_refused(loader):
    tensor = next(loader)["input_ids"]
    assert tensor.__dlpack_device__() == (1, 0)
    for request in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            tensor.__dlpack__(**request)


def test_memory_may_be_freed_on_any_thread_after_the_loader_is_gone(recipe):
    import threading

    loader = stoker.Loader(recipe)
    held = [next(loader).torch()]
    del loader
    gc.collect()
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert not held


def pixels(recipe, kind, **options):
    loader = stoker.Loader(recipe, overrides={"vision.pixels": kind})
    return [batch.to("cpu", **options)["pixel_values"].clone() for batch in loader]


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5"])
def test_u8_finishes_to_each_dtype_in_each_family(quick, family):
    quick["vision"]["family"] = family
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        expected = [tensor.to(dtype) for tensor in pixels(quick, "f32")]
        for one, other in zip(expected, pixels(quick, "u8", dtype=dtype), strict=True):
            assert other.dtype == dtype
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_what_finishes_u8_does_not_depend_on_torchs_default_dtype(quick):
    expected = pixels(quick, "f32")
    torch.set_default_dtype(torch.bfloat16)
    try:
        finished = pixels(quick, "u8")
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, expected, finished))


@pytest.mark.parametrize("compat", ["as-displayed", "transformers-path"])
@pytest.mark.parametrize("model", ["qwen3-vl", "qwen2.5-vl"])
def test_u8_finishes_to_f32_bit_for_bit(recipe, compat, model):
    recipe["compat"] = compat
    recipe["model"] = recipe["model"].replace("qwen3-vl", model)
    expected = pixels(recipe, "f32")
    finished = pixels(recipe, "u8")
    assert len(expected) == len(finished) > 0
    for one, other in zip(expected, finished, strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))


def test_bf16_is_f32_rounded(recipe):
    expected = [tensor.to(torch.bfloat16) for tensor in pixels(recipe, "f32")]
    routes = [
        pixels(recipe, "bf16"),
        pixels(recipe, "f32", dtype=torch.bfloat16),
        pixels(recipe, "u8", dtype=torch.bfloat16),
    ]
    for route in routes:
        for one, other in zip(expected, route, strict=True):
            assert other.dtype == torch.bfloat16
            assert torch.equal(one.view(torch.int16), other.view(torch.int16))


def test_numpy_shows_bf16_as_its_bits(recipe):
    batch = next(stoker.Loader(recipe, overrides={"vision.pixels": "bf16"}))
    bits = batch.numpy()["pixel_values"]
    assert bits.dtype == np.uint16
    values = (bits.astype("uint32") << 16).view("float32")
    assert np.array_equal(values, batch.torch()["pixel_values"].float().numpy())


def test_numpy_arrays_can_be_written(loader):
    for array in next(loader).numpy().values():
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_only_the_pixels_change_on_the_way_to_a_device(recipe):
    batch = next(stoker.Loader(recipe, overrides={"vision.pixels": "u8"}))
    moved, here = batch.to("cpu"), batch.torch()
    assert list(moved) == list(here)
    for name in set(moved) - {"pixel_values"}:
        assert torch.equal(moved[name], here[name])
    assert here["pixel_values"].dtype == torch.uint8
    assert batch.finish["pixels"] == "u8"
