"""What a topology promises by closed form, so that it can be held against the built one, and topologies against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, kw_only=True)
class Figures:
    """`cables`: those between switches. `diameter` and `mean_hops` count the cables between switches on a way from NIC to NIC,
    the mean over all ordered pairs of different NICs. `bisection_share`: of what half of the NICs can send at line rate, how
    much the cables between the halves carry one way. Halves are as equal as whole switches allow, and a dragonfly's as whole
    groups: with an odd number of them, halves that split one can have somewhat less.
    """

    gpus: int
    switches: int
    cables: int
    diameter: int
    mean_hops: Fraction
    bisection_share: Fraction


def mean_of(pairs: Mapping[int, int]) -> Fraction:
    """Mean number of hops, from hops -> ordered pairs of NICs; 0 without a pair."""
    return Fraction(sum(hops * count for hops, count in pairs.items()), sum(pairs.values()) or 1)


def longest_of(pairs: Mapping[int, int]) -> int:
    """The diameter, from the same."""
    return max((hops for hops, count in pairs.items() if count), default=0)
