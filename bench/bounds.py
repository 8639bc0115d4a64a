"""How sure a median is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """Between what the median is, with a probability of 95 %: two of the sorted ratios."""
    count = len(ratios)
    sides, below = 0.0, 0
    while (sides := sides + 2 * math.comb(count, below) / 2**count) <= 0.05:
        below += 1
    ordered = sorted(ratios)
    return ordered[max(below - 1, 0)], ordered[count - max(below, 1)]
