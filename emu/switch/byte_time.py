"""How long a frame occupies a link, to the nanosecond as the kernel's shaper has it.

The kernel multiplies by a scaled reciprocal of the rate and drops the fraction of each frame; a clock that adds up exact times
would run away from the queue it stands for. Source: linux/net/sched/sch_generic.c (psched_ratecfg_precompute__).
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import UsageError

SECOND_NS = 1_000_000_000
MULT_TOP, FACTOR_TOP = 1 << 31, 1 << 63


@dataclass(frozen=True)
class ByteTime:
    """A byte lasts mult / 2^shift ns."""

    mult: int
    shift: int

    @classmethod
    def at(cls, rate_bytes: int) -> ByteTime:
        """Of a link that passes `rate_bytes` a second."""
        if rate_bytes < 1:
            raise UsageError(f"a link of {rate_bytes} bytes/s passes nothing; want 1 or more")
        factor, shift = SECOND_NS, 0
        while not (factor // rate_bytes >= MULT_TOP or factor >= FACTOR_TOP):
            factor, shift = factor << 1, shift + 1
        return cls(factor // rate_bytes, shift)

    def ns(self, count_bytes: int) -> int:
        return count_bytes * self.mult >> self.shift
