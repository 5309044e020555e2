"""Shortest paths to every access prefix, all equal-cost next hops kept: what ECMP hashes over.

One search per access switch (Dijkstra's) serves every other switch. Per switch the next-hop set that most prefixes
share becomes the default route, so a leaf of a 2-tier fabric has one multipath route, whatever the number of leaves;
neighbouring prefixes that are left with the same next hops are one route.
"""

from __future__ import annotations

import heapq
import ipaddress
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

Adjacency = Mapping[str, Sequence[tuple[str, str, int]]]  # switch -> (neighbour switch, own ifname, cost), in port order
NextHops = tuple[str, ...]                            # own ifnames


def costs_to(target: str, adjacency: Adjacency) -> dict[str, int]:
    """Switch -> the least cost of a path to `target`."""
    cost, open_ = {target: 0}, [(0, target)]
    while open_:
        reached, here = heapq.heappop(open_)
        if reached > cost[here]:
            continue
        for neighbour, _, more in adjacency[here]:
            through = reached + more
            if through < cost.get(neighbour, math.inf):
                cost[neighbour] = through
                heapq.heappush(open_, (through, neighbour))
    return cost


def next_hops(adjacency: Adjacency, access: Sequence[str]) -> dict[str, dict[str, NextHops]]:
    """Switch -> access switch -> the interfaces on a shortest path (none for itself or what can't be reached)."""
    table: dict[str, dict[str, NextHops]] = defaultdict(dict)
    for target in access:
        cost = costs_to(target, adjacency)
        for switch, ports in adjacency.items():
            if switch == target or switch not in cost:
                continue
            here = cost[switch]  # cables go both ways: what a switch that is reached has for neighbours is reached too
            table[switch][target] = tuple(ifname for neighbour, ifname, more in ports if cost[neighbour] + more == here)
    return table


def with_default(routes: Mapping[str, NextHops]) -> tuple[NextHops | None, dict[str, NextHops]]:
    """(default next hops, exceptions): the set that most targets share, and the targets that need another."""
    if not routes:
        return None, {}
    default, uses = Counter(routes.values()).most_common(1)[0]
    if uses == 1:
        return None, dict(routes)
    return default, {target: hops for target, hops in routes.items() if hops != default}


def aggregated(routes: Mapping[str, NextHops]) -> Iterator[tuple[str, NextHops]]:
    """The same next hops for the same prefixes and no others, neighbouring prefixes with the same ones put together."""
    prefixes: dict[NextHops, list[str]] = defaultdict(list)
    for prefix, hops in routes.items():
        prefixes[hops].append(prefix)
    for hops, alike in prefixes.items():
        if len(alike) > 1:
            alike = [str(network) for network in ipaddress.collapse_addresses(map(ipaddress.IPv4Network, alike))]
        yield from ((prefix, hops) for prefix in alike)


def lookup(routes: Mapping[str, NextHops], prefixes: Sequence[str]) -> list[NextHops]:
    """Next hops to each of `prefixes` by the longest route that covers it, as the kernel looks it up; () where none does."""
    lengths = sorted({int(prefix.partition("/")[2]) for prefix in routes}, reverse=True)
    return [next(_covering(routes, ipaddress.IPv4Network(prefix), lengths), ()) for prefix in prefixes]


def _covering(routes: Mapping[str, NextHops], network: ipaddress.IPv4Network, lengths: Sequence[int]) -> Iterator[NextHops]:
    for length in lengths:
        if length <= network.prefixlen and (found := routes.get(str(network.supernet(new_prefix=length)))):
            yield found
