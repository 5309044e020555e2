"""Compute time as messages: what crosses a GPU's metronome (emu/topology/metronome.py) for as long as the GPU computes.

A short frame, then full ones. After a pause the first goes out at once, and each next one when the one before has had its time,
whether a shaper or the NIC's own pacing sees to that; so the last one, with which the computation has ended, has no part in
the time. Right after another computation the first waits for that one's last. After a pause shorter than a frame a computation
takes up to a frame longer. An average computation is FRAMES.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from emu.topology.frame import frame_bytes, size_of_frames
from emu.units import gbps

FRAMES = 40
RATE_MIN_BPS = gbps(1)
NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class ComputeClock:
    """Of `rate_bps`, frames of `mtu_bytes`."""

    rate_bps: int
    mtu_bytes: int

    @classmethod
    def for_times(cls, times_ns: Iterable[int], mtu_bytes: int) -> ComputeClock:
        """Fit for these; zeros don't count."""
        there = [time_ns for time_ns in times_ns if time_ns]
        mean_ns = sum(there) / len(there) if there else NS
        return cls(rate_bps=max(RATE_MIN_BPS, round(FRAMES * frame_bytes(mtu_bytes) * 8 * NS / mean_ns)), mtu_bytes=mtu_bytes)

    def sizes(self, duration_ns: int, *, straight_on: bool = False) -> tuple[int, ...]:
        """Of the messages that take this long together. straight_on: right after another computation."""
        full = frame_bytes(self.mtu_bytes)
        wire_bytes = duration_ns * self.rate_bps // (8 * NS) - full * straight_on
        if wire_bytes < frame_bytes(1):
            return (1,)
        more, short = divmod(wire_bytes - 1, full)
        return size_of_frames(short + 1, self.mtu_bytes), (1 + more) * self.mtu_bytes

    @property
    def error_ns(self) -> float:
        """The most that a message may take longer."""
        return frame_bytes(self.mtu_bytes) * 8 * NS / self.rate_bps
