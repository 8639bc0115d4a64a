"""What Accelerate has to know of a loop over batches, without importing it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def active(data_loader: Any) -> Iterator[None]:
    """Tells Accelerate which loop is running, if the program uses it.

    At the last batch of a pass (`end_of_dataloader`) it then takes a step with the gradients it
    has, though fewer than `gradient_accumulation_steps` were added up.
    """
    state = sys.modules.get("accelerate.state")
    if state is None:
        yield
        return
    gradients = state.GradientState()
    gradients._add_dataloader(data_loader)
    try:
        yield
    finally:
        gradients._remove_dataloader(data_loader)
