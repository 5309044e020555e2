"""Flows of unequal size on uplinks: each where the busier of its two links is least busy, then local search.

The links of a flow on uplink k are cable k of its source leaf (up) and cable k of its target leaf (down). Greedy in
descending size is Graham's LPT rule with two machines at a time; local search moves one flow off the busiest link, or
swaps it with a flow that shares a leaf, while that makes the busiest less busy and no other link as busy.
Source: Graham, Bounds on multiprocessing timing anomalies, 1969 (from memory); for the aim, arXiv 2407.00550.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol


class Flow(Protocol):
    """What is placed."""

    source_leaf: str
    target_leaf: str
    size_bytes: int


class Link(NamedTuple):
    """One direction of the cable `uplink` of `leaf`: up to the spine or down from it."""

    leaf: str
    up: bool
    uplink: int


class Placement:
    """`uplink_of`: the uplink of each flow, None while it has none; `allowed`: the uplinks each may have."""

    def __init__(self, flows: Sequence[Flow], allowed: Sequence[Collection[int]]) -> None:
        self.flows, self.allowed = flows, allowed
        self.uplink_of: list[int | None] = [None] * len(flows)
        self.load_bytes: dict[Link, int] = {}
        self._on: dict[Link, dict[int, None]] = {}

    def links(self, flow: int, uplink: int) -> tuple[Link, Link]:
        ends = self.flows[flow]
        return Link(ends.source_leaf, True, uplink), Link(ends.target_leaf, False, uplink)

    @property
    def max_bytes(self) -> int:
        return max(self.load_bytes.values(), default=0)

    def put(self, flow: int, uplink: int) -> None:
        self.uplink_of[flow] = uplink
        for link in self.links(flow, uplink):
            self.load_bytes[link] = self.load_bytes.get(link, 0) + self.flows[flow].size_bytes
            self._on.setdefault(link, {})[flow] = None

    def take(self, flow: int) -> None:
        for link in self.links(flow, self.uplink_of[flow]):
            self.load_bytes[link] -= self.flows[flow].size_bytes
            del self._on[link][flow]
        self.uplink_of[flow] = None

    def on(self, link: Link) -> list[int]:
        return list(self._on.get(link, ()))

    def loads(self, flow: int, uplink: int) -> tuple[int, int]:
        """Bytes that the flow's two links on `uplink` have now."""
        up, down = self.links(flow, uplink)
        return self.load_bytes.get(up, 0), self.load_bytes.get(down, 0)

    def least_loaded(self, flow: int) -> int:
        """Smallest busier link, then smallest sum, then the lowest index."""

        def busy(uplink: int) -> tuple[int, int, int]:
            up, down = self.loads(flow, uplink)
            return max(up, down), up + down, uplink

        return min(self.allowed[flow], key=busy)


def place_rest(placement: Placement) -> None:
    """Put every flow that has no uplink on its least loaded one, the largest first."""
    rest = [flow for flow, uplink in enumerate(placement.uplink_of) if uplink is None]
    for flow in sorted(rest, key=lambda flow: -placement.flows[flow].size_bytes):
        placement.put(flow, placement.least_loaded(flow))


def relieve(placement: Placement, bound_bytes: int, steps: int) -> None:
    """Local search on the busiest link until it has at most `bound_bytes`, nothing helps, or `steps` are used up."""
    for _ in range(steps):
        busiest = max(placement.load_bytes, key=placement.load_bytes.__getitem__, default=None)
        if busiest is None or placement.load_bytes[busiest] <= bound_bytes:
            return
        if not (_moved_one(placement, busiest) or _swapped_one(placement, busiest)):
            return


def _moved_one(placement: Placement, busiest: Link) -> bool:
    limit = placement.load_bytes[busiest]
    for flow in placement.on(busiest):
        size = placement.flows[flow].size_bytes
        to = placement.least_loaded(flow)
        if to != busiest.uplink and max(placement.loads(flow, to)) + size < limit:
            placement.take(flow)
            placement.put(flow, to)
            return True
    return False


def _swapped_one(placement: Placement, busiest: Link) -> bool:
    limit = placement.load_bytes[busiest]
    return any(
        _swap(placement, flow, other, limit)
        for flow in placement.on(busiest)
        for other in _partners(placement, flow, busiest.uplink)
    )


def _partners(placement: Placement, flow: int, uplink: int) -> Iterator[int]:
    """Flows on another uplink that share a leaf with `flow` and may have its uplink."""
    for other_uplink in placement.allowed[flow]:
        if other_uplink == uplink:
            continue
        both = dict.fromkeys(other for link in placement.links(flow, other_uplink) for other in placement.on(link))
        yield from (other for other in both if uplink in placement.allowed[other])


def _swap(placement: Placement, a: int, b: int, limit_bytes: int) -> bool:
    """Exchange the uplinks of a and b if each of their links then has less than the limit."""
    at_a, at_b = placement.uplink_of[a], placement.uplink_of[b]
    _exchange(placement, a, at_b, b, at_a)
    touched = [load for flow in (a, b) for uplink in (at_a, at_b) for load in placement.loads(flow, uplink)]
    if max(touched) < limit_bytes:
        return True
    _exchange(placement, a, at_a, b, at_b)
    return False


def _exchange(placement: Placement, a: int, to_a: int, b: int, to_b: int) -> None:
    placement.take(a)
    placement.take(b)
    placement.put(a, to_a)
    placement.put(b, to_b)
