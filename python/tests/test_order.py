"""The golden orders are those of the model that was written from the documentation."""

import runpy
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "testdata" / "golden" / "plan"


def test_the_golden_orders_are_what_the_model_writes():
    model = runpy.run_path(str(GOLDEN / "model.py"))
    assert model["written"]() == (GOLDEN / "orders.json").read_text()
