"""How to make `sch_red` follow a switch's marking law, and how far off it stays.

RED doesn't toss a coin per packet: after a mark it draws qR, uniform in 0…R, and marks again at the first packet number c
with c·(q − Kmin) >= qR. At a held queue the gaps are uniform in 1…R/(q − Kmin), half as long on average as the nominal
1/p, so that RED told "Pmax = 20 %" marks up to 33 %. R itself is 2^32 over an integer m = max_P/(Kmax − Kmin).
So m is the one knob; `fit` takes the m whose expected marking share is closest to the linear ramp. Steep ramps can't be met.
Source: linux/include/net/red.h (red_set_parms, red_mark_probability).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from emu.topology.queue_profile import EcnProfile

_U32 = 1 << 32
_GRID = 64
_CANDIDATES = 64
DEVIATION_MAX = 0.02  # of marking probability
DEVIATION_MAX_OF_PMAX = 0.1  # the same, of a small pmax


@dataclass(frozen=True)
class RedFit:
    """max_p in units of 2^-32 as the kernel takes it; `deviation` is the largest |share marked − P(q)| on the ramp."""

    max_p: int
    deviation: float


def marked_share(above_kmin_bytes: float, spread: float) -> float:
    """Long-run share of packets RED marks at a queue held `above_kmin_bytes` over Kmin; `spread` is R."""
    if above_kmin_bytes <= 0:
        return 0.0
    most = int(spread / above_kmin_bytes)
    mean_gap = (most + 1) - above_kmin_bytes / spread * most * (most + 1) / 2
    return 1 / mean_gap


def limit(ecn: EcnProfile) -> float:
    """The deviation up to which RED passes for the law."""
    return min(DEVIATION_MAX, DEVIATION_MAX_OF_PMAX * ecn.pmax)


@functools.cache
def fit(ecn: EcnProfile) -> RedFit:
    """The best max_P for a profile; a step needs none."""
    ramp = ecn.kmax_bytes - ecn.kmin_bytes
    if not ramp:
        return RedFit(max_p=_U32 - 1, deviation=0.0)
    low = max(1, int(ecn.pmax / 2 * _U32 / ramp))
    high = max(low, min(round(ecn.pmax / (2 - ecn.pmax) * _U32 / ramp) + 1, (_U32 - 1) // ramp))
    stride = max(1, (high - low) // _CANDIDATES)
    deviation, m = min((_deviation(ecn, ramp, m), m) for m in range(low, high + 1, stride))
    return RedFit(max_p=m * ramp, deviation=deviation)


def _deviation(ecn: EcnProfile, ramp: int, m: int) -> float:
    return max(
        abs(marked_share(ramp * i / _GRID, _U32 / m) - ecn.pmax * i / _GRID) for i in range(1, _GRID)
    )
