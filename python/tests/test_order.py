"""The golden orders are those of the model that was written from the documentation."""

import runpy
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "testdata" / "golden" / "plan"


@pytest.fixture(scope="module")
def files():
    return runpy.run_path(str(GOLDEN / "model.py"))["files"]()


@pytest.mark.parametrize("name", ["orders.json", "ends.json"])
def test_the_golden_orders_are_what_the_model_writes(files, name):
    assert files[name] == (GOLDEN / name).read_text()
