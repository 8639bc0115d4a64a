from __future__ import annotations

import inspect

import pytest
import stoker


@pytest.mark.parametrize("thing", [stoker.Loader, stoker.Batch, stoker.Tensor, stoker.Trace])
def test_every_method_has_help(thing):
    names = [name for name in vars(thing) if not name.startswith("_")]
    assert names
    assert [name for name in names if not inspect.getdoc(getattr(thing, name))] == []


def test_help_of_a_batch_names_each_tensor_with_dtype_and_shape(recipe):
    rows = [line for line in inspect.getdoc(stoker.Batch).splitlines() if line.startswith("|")]
    batch = next(stoker.Loader(recipe))
    for name, tensor in batch.items():
        row = next(row for row in rows if f"`{name}`" in row)
        assert tensor.dtype in row
        assert row.count(",") + 1 >= len(tensor.shape)


def test_help_of_a_loader_names_each_argument_and_error():
    text = inspect.getdoc(stoker.Loader)
    arguments = list(inspect.signature(stoker.Loader).parameters)
    assert arguments == ["recipe", "rank", "world_size", "group", "overrides"]
    errors = [name for name in stoker.__all__ if name.endswith("Error")]
    own = {"StokerError", "BugError", "CursorError", "ClusterError"}
    for name in [*arguments, *(set(errors) - own)]:
        assert name in text, name


def test_help_of_a_loader_on_ray_names_each_argument_and_error():
    pytest.importorskip("ray")
    from stoker.ray import RayLoader

    text = inspect.getdoc(RayLoader) + inspect.getdoc(RayLoader.__next__)
    arguments = list(inspect.signature(RayLoader).parameters)
    errors = [name for name in stoker.__all__ if name.endswith("Error")]
    own = {"StokerError", "BugError", "CursorError"}
    for name in [*arguments, *(set(errors) - own)]:
        assert name in text, name
