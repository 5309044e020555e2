"""Queue depth from samples taken at equal intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least `share` of `values` do not exceed (nearest rank); 0 of nothing."""
    if not values:
        return 0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
