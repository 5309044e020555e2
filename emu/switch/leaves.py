"""Leaves as the switch program counts them: a number for each, a slot for each uplink, and what leads where.

Pure. Any switch with servers is a leaf, any of its other ports an uplink; which of them lead to another leaf at equal cost the
plan's routes say, so that the program chooses among exactly what the kernel would hash over.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emu.errors import TopologyError
from emu.topology.model import Port
from emu.topology.plan import NodePlan, Plan, PortPlan, Route, access_prefixes

LEAVES_MAX, UPLINKS_MAX = 512, 128  # switch.h
DEFAULT_ROUTE = "0.0.0.0/0"
Slots = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """`down`: ports towards servers; `up`: the others, whose place is their slot."""

    number: int
    node: NodePlan
    down: tuple[PortPlan, ...]
    up: tuple[PortPlan, ...]
    random_seed: int

    @property
    def name(self) -> str:
        return self.node.name


@dataclass(frozen=True)
class Numbering:
    """Leaf n has the addresses from `network` + (n << `shift`) on."""

    network: int
    shift: int
    prefixes: tuple[str, ...]


def leaves(plan: Plan) -> list[Leaf]:
    """By number. TopologyError if there are more than the switch program has room for."""
    nodes = {node.name: node for node in plan.nodes}
    found = [_leaf(number, nodes[name], plan) for number, name in enumerate(access_prefixes(plan.topology))]
    if len(found) > LEAVES_MAX:
        raise TopologyError(f"{len(found)} leaves; the switch program has room for {LEAVES_MAX}: use larger leaves, or lb=ecmp")
    widest = max(found, key=lambda leaf: len(leaf.up))
    if len(widest.up) > UPLINKS_MAX:
        raise TopologyError(f"{widest.name} has {len(widest.up)} uplinks; the switch program has room for {UPLINKS_MAX}")
    return found


def leaf_of_nic(found: Iterable[Leaf]) -> dict[Port, str]:
    """NIC -> the name of its leaf."""
    return {port.peer: leaf.name for leaf in found for port in leaf.down}


def numbering(plan: Plan) -> Numbering:
    prefixes = tuple(access_prefixes(plan.topology).values())
    first = ipaddress.IPv4Network(prefixes[0])
    return Numbering(int(first.network_address), 32 - first.prefixlen, prefixes)


def reach(leaf: Leaf, routes: Sequence[Route], numbers: Numbering) -> list[Slots]:
    """The equal-cost uplinks from `leaf` to each leaf, by number; none to itself or where no route leads."""
    slot = {port.port.ifname: at for at, port in enumerate(leaf.up)}
    via = {route.prefix: tuple(slot[name] for name in route.via) for route in routes}
    found = [via.get(prefix, via.get(DEFAULT_ROUTE, ())) for prefix in numbers.prefixes]
    found[leaf.number] = ()
    return found


def random_seed(seed: int, leaf: str) -> int:
    """64-bit seed of a leaf's own generator."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{leaf}/spray".encode()).digest()[:8], "big")


def _leaf(number: int, node: NodePlan, plan: Plan) -> Leaf:
    servers = {server.name for server in plan.topology.servers}
    down = tuple(port for port in node.ports if port.peer.node in servers)
    up = tuple(port for port in node.ports if port.peer.node not in servers)
    return Leaf(number=number, node=node, down=down, up=up, random_seed=random_seed(plan.seed, node.name))
