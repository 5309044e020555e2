"""Shortest paths to every access prefix, all equal-cost next hops kept: what ECMP hashes over.

One breadth-first search per access switch serves every other switch. Per switch the next-hop set that most prefixes
share becomes the default route, so a leaf of a 2-tier fabric has one multipath route, whatever the number of leaves.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

Adjacency = Mapping[str, Sequence[tuple[str, str]]]  # switch -> (neighbour switch, own ifname), in port order
NextHops = tuple[str, ...]                            # own ifnames


def hops_to(target: str, adjacency: Adjacency) -> dict[str, int]:
    """Switch -> number of links to `target`."""
    distance = {target: 0}
    queue = deque([target])
    while queue:
        here = queue.popleft()
        for neighbour, _ in adjacency[here]:
            if neighbour not in distance:
                distance[neighbour] = distance[here] + 1
                queue.append(neighbour)
    return distance


def next_hops(adjacency: Adjacency, access: Sequence[str]) -> dict[str, dict[str, NextHops]]:
    """Switch -> access switch -> the interfaces on a shortest path (none for itself or what can't be reached)."""
    table: dict[str, dict[str, NextHops]] = defaultdict(dict)
    for target in access:
        distance = hops_to(target, adjacency)
        for switch, ports in adjacency.items():
            if switch == target or switch not in distance:
                continue
            table[switch][target] = tuple(
                ifname for neighbour, ifname in ports if distance.get(neighbour) == distance[switch] - 1
            )
    return table


def with_default(routes: Mapping[str, NextHops]) -> tuple[NextHops | None, dict[str, NextHops]]:
    """(default next hops, exceptions): the set that most targets share, and the targets that need another."""
    if not routes:
        return None, {}
    default, uses = Counter(routes.values()).most_common(1)[0]
    if uses == 1:
        return None, dict(routes)
    return default, {target: hops for target, hops in routes.items() if hops != default}
