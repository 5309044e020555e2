"""How evenly the uplinks of a leaf were used, from the bytes of each (the reference article's figure 3).

All uplinks have one rate and a collective ends with its last byte, so the busiest uplink sets the time: of the
bandwidth of all of them, mean / max is got and the rest is lost. What hashing loses on average: hashing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.errors import UsageError
from emu.measure.metric import Metric


@dataclass(frozen=True)
class Spread:
    """Bytes on each uplink, of one leaf or all. Ratios are 0 to 1; max over mean is 1 (even) to the number of uplinks.

    UsageError without an uplink or without a byte: there is nothing to be even or uneven.
    """

    uplink_bytes: Sequence[int]

    def __post_init__(self) -> None:
        if not any(self.uplink_bytes):
            raise UsageError(f"no byte on any of {len(self.uplink_bytes)} uplinks; want traffic between leaves")

    @property
    def max_over_mean(self) -> float:
        return max(self.uplink_bytes) * len(self.uplink_bytes) / sum(self.uplink_bytes)

    @property
    def idle_share(self) -> float:
        """Uplinks without a byte."""
        return self.uplink_bytes.count(0) / len(self.uplink_bytes)

    @property
    def efficiency(self) -> float:
        """Mean over maximum."""
        return 1 / self.max_over_mean

    @property
    def lost_share(self) -> float:
        """Bandwidth of the uplinks that the unevenness costs: 1 - mean / max."""
        return 1 - self.efficiency

    def metrics(self) -> list[Metric]:
        """The contract's figures of these uplinks."""
        of = f"{len(self.uplink_bytes)} uplinks"
        return [
            Metric("uplink_max_over_mean", self.max_over_mean, "ratio", note=of),
            Metric("uplink_idle_share", self.idle_share, "ratio", note=of),
            Metric("uplink_lost_share", self.lost_share, "ratio", note=f"1 - mean / max of {of}"),
        ]
