"""Expert parallelism: which ranks a batch of tokens goes to, which is an all-to-all with uneven blocks.

Every token picks `top_k` of the experts, which are spread evenly over the ranks; a rank that has several of them gets the
token once. Experts differ in popularity as 1/place^skew, in an order drawn from the seed, so that some ranks are asked for
more than others.
Source: DeepSeek-V3 technical report (top 8 of 256 routed experts; a token is sent once to each place); Zipf's law for the skew.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

from emu.collectives.all_to_all import IN_FLIGHT, all_to_all_of
from emu.collectives.cut import need_at_least_one
from emu.collectives.placement import Placement
from emu.collectives.schedule import Schedule
from emu.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Tokens of each rank, bytes of one, experts in all and how many a token picks; skew 0: all equally popular."""

    tokens: int = 128
    token_bytes: int = 7168  # DeepSeek-V3: hidden size 7168, FP8
    experts: int = 256
    top_k: int = 8
    skew: float = 0.5

    def __post_init__(self) -> None:
        need_at_least_one(tokens=self.tokens, token_bytes=self.token_bytes, experts=self.experts, top_k=self.top_k)
        if self.top_k > self.experts:
            raise UsageError(f"top_k={self.top_k} of experts={self.experts}; want at most {self.experts}")


def moe_dispatch(
    placement: Placement, routing: Routing, *, seed: int, order: str = "nccl", pxn: bool = False, in_flight: int = IN_FLIGHT
) -> Schedule:
    """Tokens to their experts: `all_to_all` with uneven blocks. size_bytes: the mean over the ranks, own share included."""
    blocks = dispatch_bytes(placement.ranks, routing, Random(seed))
    size_bytes = round(sum(map(sum, blocks)) / placement.ranks)
    return all_to_all_of(placement, blocks, size_bytes, order=order, pxn=pxn, in_flight=in_flight)


def dispatch_bytes(ranks: int, routing: Routing, rng: Random) -> list[list[int]]:
    """Bytes by source and target; what a rank keeps for its own experts is on the diagonal."""
    if routing.experts % ranks:
        raise UsageError(f"experts={routing.experts} over ranks={ranks}; want a multiple of the ranks")
    experts_per_rank = routing.experts // ranks
    popularity = list(accumulate((place + 1) ** -routing.skew for place in range(routing.experts)))
    experts = rng.sample(range(routing.experts), routing.experts)
    blocks = [[0] * ranks for _ in range(ranks)]
    for row in blocks:
        for _ in range(routing.tokens):
            for target in {expert // experts_per_rank for expert in _pick(experts, popularity, routing.top_k, rng)}:
                row[target] += routing.token_bytes
    return blocks


def _pick(experts: list[int], popularity: list[float], count: int, rng: Random) -> set[int]:
    picked: set[int] = set()
    while len(picked) < count:
        picked.update(rng.choices(experts, cum_weights=popularity, k=count - len(picked)))
    return picked
