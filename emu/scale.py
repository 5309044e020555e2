"""Dilation: one factor D between fabric time (what the user asked for) and kernel time (what the CPU can keep up with).

Every rate is divided by D and every delay multiplied by it; bytes (thresholds, buffers, MTU) stay. Reports give
fabric time = kernel time / D. `tc` counts bursts in 64 ns ticks, so a packet has to last microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from emu.errors import UsageError

PACKET_MIN_NS = 5_000  # virtual clock: one full frame lasts at least this long at the fastest link
_NICE = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """D (`dilation`), and how much traffic a shaper may catch up after a late timer (`catch_up_ns`, kernel time).

    On the virtual clock timers are never late and catch_up_ns is 0: a shaper's burst is one frame.
    """

    dilation: int
    catch_up_ns: int = 0

    def __post_init__(self) -> None:
        if self.dilation < 1:
            raise UsageError(f"dilation={self.dilation}; want a whole number from 1")

    @property
    def exact(self) -> bool:
        """Timers are never late: the virtual clock."""
        return self.catch_up_ns == 0

    def kernel_bps(self, nominal_bps: int) -> int:
        """Emulated rate in bit/s, a whole number of bytes/s as `tc` wants it."""
        return nominal_bps // (8 * self.dilation) * 8

    def kernel_ns(self, fabric_ns: float) -> int:
        return round(fabric_ns * self.dilation)

    def fabric_ns(self, kernel_ns: float) -> float:
        return kernel_ns / self.dilation

    def burst_bytes(self, nominal_bps: int, frame_bytes: int) -> int:
        """What a shaper of this link may send at once: one frame, or what a late timer has to make up for."""
        late_bytes = self.kernel_bps(nominal_bps) * self.catch_up_ns // (8 * 1_000_000_000)
        return max(frame_bytes, late_bytes + frame_bytes if late_bytes else frame_bytes)


def at_least(dilation: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 … from `dilation` upwards: figures that people can divide by."""
    if dilation <= 1:
        return 1
    decade = 10 ** math.floor(math.log10(dilation))
    return next(step * decade for step in (*_NICE, 10) if step * decade >= dilation * (1 - 1e-9))


def for_virtual_clock(fastest_bps: int, frame_bytes: int) -> int:
    """D such that a frame on the fastest link lasts PACKET_MIN_NS or more."""
    return at_least(PACKET_MIN_NS * fastest_bps / (frame_bytes * 8 * 1e9))


def for_real_clock(offered_hops_per_s: float, capacity_hops_per_s: float, head_room: float) -> int:
    """D such that the offered packet-hops use at most the share `head_room` of what this host can forward."""
    return at_least(offered_hops_per_s / (capacity_hops_per_s * head_room))
