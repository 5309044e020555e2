"""SDN path navigation: told all connections at once, a controller gives each its spine.

    leaf0 --up2--> spine2 --down--> leaf5        uplink 2 of leaf0, then cable 2 of leaf5, downwards

A flow's path is one number: uplink k of its source leaf, and down the cable that is uplink k of its target leaf; both
end at spine k mod spines (the order of emu/topology/spine_leaf.py). Balancing the uplinks alone would still collide
on the way down, so the leaves are the two sides of a bipartite graph, a flow is an edge, an uplink is a colour. A leaf
with more flows than live uplinks is split into several vertices, its flows dealt out in descending size: no link then
carries more than ceil(flows / uplinks) of equal flows, which nobody can beat. Unequal flows are also placed greedily;
local search improves both and the better one is taken.

Sources: reference article (the collective library reports its connections); Huawei WO2024021990A1 (leaf uplinks and
spine downlinks each used once); arXiv 2407.00550. H3C's own algorithm isn't public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.errors import UsageError
from emu.switch.edge_colouring import colour_edges
from emu.switch.least_load import Link, Placement, place_rest, relieve

SEARCH_STEPS = 400  # bounds the time of thousands of flows
NEAR_ENOUGH = 1000  # search stops within this fraction of the bound: less than any link's counters show


@dataclass(frozen=True)
class Connection:
    """One flow that the collective reported; `key` is whatever finds it again (a 5-tuple, a QP).

    `size_bytes` is its share of the load: bytes, or bytes per second, the same for all connections of a call.
    """

    key: Hashable
    source_leaf: str
    target_leaf: str
    size_bytes: int = 1


@dataclass(frozen=True)
class Uplinks:
    """Every leaf has `per_leaf` uplinks, number k to spine k mod `spines`; `failed`: the (leaf, k) that are down."""

    per_leaf: int
    spines: int
    failed: frozenset[tuple[str, int]] = frozenset()

    def __post_init__(self) -> None:
        if self.per_leaf < 1 or self.spines < 1 or self.per_leaf % self.spines:
            raise UsageError(
                f"{self.per_leaf} uplinks per leaf on {self.spines} spines; want 1 or more, equally many to each spine"
            )
        for leaf, uplink in sorted(self.failed):
            if not 0 <= uplink < self.per_leaf:
                raise UsageError(f"failed uplink {uplink} of {leaf}: a leaf has uplinks 0 to {self.per_leaf - 1}")

    def live(self, leaf: str) -> list[int]:
        return [k for k in range(self.per_leaf) if (leaf, k) not in self.failed]


class Path(NamedTuple):
    """Uplink of the source leaf, and the spine behind it."""

    uplink: int
    spine: int


@dataclass(frozen=True)
class Navigation:
    """Paths of all connections that leave their leaf, and the load (in size_bytes) that they promise per link.

    `bound_bytes`: no assignment has a busiest link below it. `moved`: keys whose path is another than before.
    """

    paths: Mapping[Hashable, Path]
    up_bytes: Mapping[tuple[str, int], int]
    down_bytes: Mapping[tuple[str, int], int]
    bound_bytes: int
    moved: tuple[Hashable, ...] = ()

    @property
    def max_up_bytes(self) -> int:
        """Busiest leaf → spine link, as promised."""
        return max(self.up_bytes.values(), default=0)

    @property
    def max_down_bytes(self) -> int:
        """Busiest spine → leaf link, as promised."""
        return max(self.down_bytes.values(), default=0)

    @property
    def max_bytes(self) -> int:
        return max(self.max_up_bytes, self.max_down_bytes)


def navigate(connections: Iterable[Connection], uplinks: Uplinks) -> Navigation:
    """Paths for all connections at once; the same call gives the same paths. Flows within one leaf have none.

    UsageError: a key twice, a size below 1, or two leaves that no spine connects any more.
    """
    flows = _crossing(connections)
    coloured = _coloured(flows, uplinks)
    bound = lower_bound_bytes(flows, uplinks)
    if coloured.max_bytes <= bound:
        return _navigation(coloured, uplinks, bound)
    greedy = _empty(flows, uplinks)
    place_rest(greedy)
    for placement in (coloured, greedy):
        relieve(placement, bound + bound // NEAR_ENOUGH, SEARCH_STEPS)
    return _navigation(min(coloured, greedy, key=lambda placement: placement.max_bytes), uplinks, bound)


def reroute(before: Navigation, connections: Iterable[Connection], uplinks: Uplinks) -> Navigation:
    """Paths after a link went down or came back; only flows whose path is dead move, and what local search moves.

    Where computing all paths afresh promises a less busy busiest link, that is done, however many flows it moves.
    """
    flows = _crossing(connections)
    fresh = navigate(flows, uplinks)
    kept = _empty(flows, uplinks)
    for index, flow in enumerate(flows):
        path = before.paths.get(flow.key)
        if path and path.uplink in kept.allowed[index]:
            kept.put(index, path.uplink)
    place_rest(kept)
    relieve(kept, fresh.max_bytes, SEARCH_STEPS)
    after = _navigation(kept, uplinks, fresh.bound_bytes) if kept.max_bytes <= fresh.max_bytes else fresh
    moved = tuple(key for key, path in after.paths.items() if before.paths.get(key, path) != path)
    return replace(after, moved=moved)


def lower_bound_bytes(connections: Iterable[Connection], uplinks: Uplinks) -> int:
    """What the busiest link carries at least: a leaf's bytes over its live uplinks, or flows that must share a link.

    Of a leaf's n·k + 1 largest flows on n uplinks, k + 1 share one, each as large as the smallest of them.
    """
    sizes: dict[tuple[str, bool], list[int]] = {}
    for flow in sorted(connections, key=lambda flow: -flow.size_bytes):
        if flow.source_leaf != flow.target_leaf:
            sizes.setdefault((flow.source_leaf, True), []).append(flow.size_bytes)
            sizes.setdefault((flow.target_leaf, False), []).append(flow.size_bytes)
    return max((_leaf_bound(size, len(uplinks.live(leaf))) for (leaf, _), size in sizes.items()), default=0)


def _leaf_bound(sizes: Sequence[int], live: int) -> int:
    shared = [(k + 1) * size for k, size in enumerate(sizes[::live])]
    return max(-(-sum(sizes) // live), *shared)


def _crossing(connections: Iterable[Connection]) -> list[Connection]:
    flows = list(connections)
    key, times = Counter(flow.key for flow in flows).most_common(1)[0] if flows else (None, 0)
    if times > 1:
        raise UsageError(f"connection {key!r} is reported {times} times; want one key for each flow")
    for flow in flows:
        if flow.size_bytes < 1:
            raise UsageError(f"connection {flow.key!r} has {flow.size_bytes} bytes; want 1 or more")
    return [flow for flow in flows if flow.source_leaf != flow.target_leaf]


def _leaves(flows: Iterable[Connection]) -> dict[str, None]:
    return dict.fromkeys(leaf for flow in flows for leaf in (flow.source_leaf, flow.target_leaf))


def _empty(flows: Sequence[Connection], uplinks: Uplinks) -> Placement:
    """Nothing placed yet. Leaf pairs are few, flows many: each pair's common uplinks are found once."""
    live = {leaf: uplinks.live(leaf) for leaf in _leaves(flows)}
    pairs = dict.fromkeys((flow.source_leaf, flow.target_leaf) for flow in flows)
    common = {(source, target): _common(source, target, live) for source, target in pairs}
    return Placement(flows, [common[flow.source_leaf, flow.target_leaf] for flow in flows])


def _common(source: str, target: str, live: Mapping[str, Sequence[int]]) -> dict[int, None]:
    at_target = set(live[target])
    common = dict.fromkeys(k for k in live[source] if k in at_target)
    if not common:
        raise UsageError(f"{source} → {target}: no uplink number is up at both; {source} has {list(live[source])}, "
                         f"{target} has {list(live[target])}; bring one up at both")
    return common


def _coloured(flows: Sequence[Connection], uplinks: Uplinks) -> Placement:
    """By edge colouring; what found no colour (several failed links at once) goes where the load is least."""
    placement = _empty(flows, uplinks)
    order = sorted(range(len(flows)), key=lambda flow: -flows[flow].size_bytes)
    edges, barred = _split(flows, order, uplinks)
    for flow, uplink in zip(order, colour_edges(edges, uplinks.per_leaf, barred), strict=True):
        if uplink is not None:
            placement.put(flow, uplink)
    place_rest(placement)
    return placement


def _split(
    flows: Sequence[Connection], order: Iterable[int], uplinks: Uplinks
) -> tuple[list[tuple[int, int]], dict[int, list[int]]]:
    """Edges between numbered vertices, none with more edges than its leaf has live uplinks; and the colours barred."""
    live = {leaf: len(uplinks.live(leaf)) for leaf in _leaves(flows)}
    failed: dict[str, list[int]] = {}
    for leaf, uplink in sorted(uplinks.failed):
        failed.setdefault(leaf, []).append(uplink)
    seen: Counter[tuple[str, bool]] = Counter()
    numbers: dict[tuple[str, bool, int], int] = {}
    barred: dict[int, list[int]] = {}

    def vertex(leaf: str, up: bool) -> int:
        place = (leaf, up, seen[leaf, up] // live[leaf])
        seen[leaf, up] += 1
        number = numbers.setdefault(place, len(numbers))
        barred[number] = failed.get(leaf, [])
        return number

    edges = [(vertex(flows[flow].source_leaf, True), vertex(flows[flow].target_leaf, False)) for flow in order]
    return edges, barred


def _navigation(placement: Placement, uplinks: Uplinks, bound_bytes: int) -> Navigation:
    paths = {
        flow.key: Path(uplink, uplink % uplinks.spines)
        for flow, uplink in zip(placement.flows, placement.uplink_of, strict=True)
    }
    loads = [(link, size) for link, size in placement.load_bytes.items() if size]
    return Navigation(paths, _direction(loads, True), _direction(loads, False), bound_bytes)


def _direction(loads: Iterable[tuple[Link, int]], up: bool) -> dict[tuple[str, int], int]:
    return {(link.leaf, link.uplink): size for link, size in sorted(loads) if link.up is up}
