"""How many marks the law wants for the queue that packets found, and the band that chance allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from emu.topology.queue_profile import EcnProfile

SIGMAS = 3.29  # 99.9 % of a normal distribution, both sides
POINTS_IN_A_BUCKET = 16  # a bucket may hold Kmin or Kmax, where the law bends


@dataclass(frozen=True)
class Band:
    """Expected marks, and the lowest and highest count that is still believable."""

    expected: float
    low: float
    high: float

    def holds(self, marked: int) -> bool:
        return self.low <= marked <= self.high


def band(probabilities: Sequence[float], law_deviation: float) -> Band:
    """For packets marked with these probabilities each; `law_deviation` widens it by what the marker is known to be off.

    Independent draws: the count's variance is the sum of p(1-p). RED's marks are spaced more evenly than that.
    """
    expected = sum(probabilities)
    spread = SIGMAS * math.sqrt(sum(p * (1 - p) for p in probabilities))
    known = law_deviation * sum(0 < p < 1 for p in probabilities)
    return Band(expected, max(0.0, expected - spread - known), expected + spread + known)


def found_while_held(ecn: EcnProfile, growing_packets: int, held_packets: int, depth_bytes: int,
                     depths: Sequence[int]) -> list[float]:
    """P(mark) of every packet: a queue growing evenly to `depth_bytes`, then held at the sampled `depths`."""
    growing = [ecn.probability(depth_bytes * (i + 0.5) / growing_packets) for i in range(growing_packets)]
    held = sum(map(ecn.probability, depths)) / len(depths) if depths else ecn.probability(depth_bytes)
    return growing + [held] * held_packets


def found_in_buckets(ecn: EcnProfile, found: Sequence[int], bucket_bytes: int) -> list[float]:
    """P(mark) of every packet from how many found the queue in each depth bucket (the BPF marker's account)."""
    points = [(i + 0.5) / POINTS_IN_A_BUCKET for i in range(POINTS_IN_A_BUCKET)]
    chances: list[float] = []
    for bucket, packets in enumerate(found):
        mean = sum(ecn.probability((bucket + point) * bucket_bytes) for point in points) / POINTS_IN_A_BUCKET
        chances += [mean] * packets
    return chances
