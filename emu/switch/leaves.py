"""Leaves as the switch program counts them: a number for each, a slot for each uplink, and what leads where.

Pure. Any switch with servers is a leaf, any of its other ports an uplink; which of them lead to another leaf at equal cost the
plan's routes say, so that the program chooses among exactly what the kernel would hash over.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emu.errors import TopologyError, UsageError
from emu.topology.model import Port, Topology
from emu.topology.plan import NodePlan, Plan, PortPlan, Route, access_prefixes, via_of

LEAVES_MAX, UPLINKS_MAX = 512, 128  # switch.h
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


def need_leaves_and_spines(topology: Topology, lb: str) -> None:
    """UsageError if what isn't plain `ecmp` would be at work on a part of the way only.

    The programs choose at the leaf a packet comes in by; that decides the way if all that is above leaves is one tier.
    """
    if lb == "ecmp":
        return
    under, switches = topology.access_links, {switch.name for switch in topology.switches}
    for link in topology.links:
        ends = {link.a.node, link.b.node}
        if ends <= switches and len(ends & under.keys()) != 1:
            raise UsageError(
                f"lb={lb} chooses at the leaf only, but {topology.name} has a cable {link.a} - {link.b}, not from a leaf to a "
                "spine, with further choices behind it; want lb=ecmp or topology=spine_leaf"
            )


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
    found = [tuple(slot[name] for name in via) for via in via_of(routes, numbers.prefixes)]
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
