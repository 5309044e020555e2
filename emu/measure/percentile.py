"""Percentiles of what was measured: always one of the values (nearest rank), never something between two."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ascending: Sequence[float], share: float) -> float:
    """The least value that at least `share` (0 < share <= 1) of `ascending`, which is sorted and not empty, do not exceed."""
    return ascending[math.ceil(share * len(ascending)) - 1]
