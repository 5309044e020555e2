"""What random hashing costs, exactly: F equal flows, each on one of U uplinks by a fair independent draw.

    P(busiest has ≤ m flows) = F!/U^F · [x^F] (Σ_{i≤m} x^i/i!)^U

(the exponential generating function of throws into cells that hold at most m). The coefficients are scaled by a Poisson
of mean F/U, so that all are probabilities: floats then lose nothing, as nothing is ever subtracted. Efficiency is mean
over maximum: all is done when the busiest uplink is, so that is the share of the uplinks' bandwidth that is got.

Source: Feller, An Introduction to Probability Theory vol 1, II.5 and IV.2 (occupancy; from memory).
"""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate
from operator import mul

from emu.errors import UsageError

NEGLIGIBLE = 1e-9  # the distribution is cut where less is left; far above rounding, far below anything measured


def expected_idle_share(uplinks: int, flows: int) -> float:
    """Share of uplinks that no flow was hashed to: (1 - 1/U)^F."""
    _check(uplinks, flows)
    return (1 - 1 / uplinks) ** flows


def expected_efficiency(uplinks: int, flows: int) -> float:
    """E[mean / max] of the flows per uplink, 0 to 1."""
    return sum(chance * flows / uplinks / busiest for busiest, chance in busiest_distribution(uplinks, flows))


def efficiency_quantile(uplinks: int, flows: int, share: float) -> float:
    """The efficiency that `share` of all hashings do not exceed: 0.05 gives the unlucky one in twenty."""
    distribution = busiest_distribution(uplinks, flows)
    reached = accumulate(chance for _, chance in reversed(distribution))
    places = (busiest for (busiest, _), total in zip(reversed(distribution), reached, strict=True) if total >= share)
    return flows / uplinks / next(places, distribution[0][0])


@cache
def busiest_distribution(uplinks: int, flows: int) -> tuple[tuple[int, float], ...]:
    """(flows on the busiest uplink, its probability), ascending; the probabilities add up to 1 - NEGLIGIBLE or more."""
    _check(uplinks, flows)
    distribution, below = [], 0.0
    for most in range(-(-flows // uplinks), flows + 1):
        at_most = _at_most(most, uplinks, flows)
        distribution.append((most, at_most - below))
        below = at_most
        if 1 - at_most < NEGLIGIBLE:
            break
    return tuple(distribution)


def _at_most(most: int, uplinks: int, flows: int) -> float:
    """P(no uplink has more than `most` of the flows)."""
    mean = flows / uplinks
    one = [_poisson(count, mean) for count in range(min(most, flows) + 1)]
    half = _power(one, uplinks // 2, flows)
    rest = _product(half, one, flows) if uplinks % 2 else half
    return min(1.0, _coefficient(half, rest, flows) / _poisson(flows, flows))


def _poisson(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _power(polynomial: list[float], exponent: int, degree: int) -> list[float]:
    """polynomial^exponent up to x^degree, by squaring."""
    if exponent == 0:
        return [1.0]
    half = _power(polynomial, exponent // 2, degree)
    square = _product(half, half, degree)
    return _product(square, polynomial, degree) if exponent % 2 else square


def _product(a: list[float], b: list[float], degree: int) -> list[float]:
    return [_coefficient(a, b, n) for n in range(min(degree, len(a) + len(b) - 2) + 1)]


def _coefficient(a: list[float], b: list[float], n: int) -> float:
    """[x^n] a·b."""
    low, high = max(0, n - len(b) + 1), min(n, len(a) - 1)
    backwards = b[n - high : n - low + 1][::-1]
    return sum(map(mul, a[low : high + 1], backwards))


def _check(uplinks: int, flows: int) -> None:
    if uplinks < 1 or flows < 1:
        raise UsageError(f"{flows} flows on {uplinks} uplinks; want at least 1 of each")
