"""The plan: everything the live fabric will be, decided before a kernel is touched. Pure, deterministic, printable.

`make_plan` gives every port its number, hardware address, address, peer and queue, and every node its routes, rules and
neighbours; `emu.fabric` only carries it out and reads it back.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from emu.errors import unknown
from emu.topology import addressing
from emu.topology.model import Link, Port, Topology
from emu.topology.queue_profile import QueueProfile
from emu.topology.routing import aggregated, lookup, next_hops, with_default

# RoCEv2 round a payload: IPv4 20 + UDP 8 + BTH 12 + RETH 16 + immediate 4 + iCRC 4 (domain facts 1.1, 1.3)
ROCE_OVERHEAD_BYTES = 64
ETHERNET_BYTES = 14
HASH_SEEDS = ("per_switch", "shared")
RAIL_TABLE = 100  # policy routing table of a server's k-th port to a switch is RAIL_TABLE + k
RESERVED_TABLES = range(253, 256)  # default, main and local (linux/rtnetlink.h)


@dataclass(frozen=True, kw_only=True)
class PortPlan:
    """One interface. `queue` is None on a server's port, which only has its line rate."""

    port: Port
    peer: Port
    ifindex: int
    mac: str
    address: str
    peer_address: str
    peer_mac: str
    rate_bps: int
    delay_ns: int
    queue: QueueProfile | None


@dataclass(frozen=True, kw_only=True)
class Route:
    """`prefix` ("0.0.0.0/0" is the default route) over `via` (own interfaces; more than one is ECMP)."""

    prefix: str
    via: tuple[str, ...]
    table: int = 254


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """A namespace. A server's `rail_tables` are (port, routing table): its traffic leaves by the port it is from."""

    name: str
    role: str
    ports: tuple[PortPlan, ...]
    routes: tuple[Route, ...]
    rail_tables: tuple[tuple[PortPlan, int], ...] = ()
    hash_seed: int = 0

    @property
    def forwards(self) -> bool:
        return self.role != "server"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Nodes in the topology's order (servers, then switches)."""

    topology: Topology
    seed: int
    nodes: tuple[NodePlan, ...]

    @property
    def link_mtu_bytes(self) -> int:
        return self.topology.path_mtu_bytes + ROCE_OVERHEAD_BYTES

    @property
    def frame_bytes(self) -> int:
        """The longest frame: what a shaper's burst has to hold."""
        return self.link_mtu_bytes + ETHERNET_BYTES

    @property
    def elided_sizes(self) -> tuple[int, int]:
        """(length of the longest frame without its payload, with it). No other frame is as short as the first."""
        return self.frame_bytes - self.topology.path_mtu_bytes, self.frame_bytes

    @property
    def ports(self) -> dict[Port, PortPlan]:
        return {plan.port: plan for node in self.nodes for plan in node.ports}

    @property
    def fastest_bps(self) -> int:
        return max(link.rate_bps for link in self.topology.links)


def make_plan(topology: Topology, seed: int, *, hash_seeds: str = "per_switch") -> Plan:
    """`seed` decides each switch's ECMP hash seed; everything else follows from the topology.

    hash_seeds="shared" gives all switches the same one: each tier picks as the one before it did (polarization).
    """
    if hash_seeds not in HASH_SEEDS:
        raise unknown("hash_seed", hash_seeds, HASH_SEEDS)
    numbers = _number_ports(topology)
    addresses = _addresses(topology)
    ports: dict[str, list[PortPlan]] = {node.name: [] for node in (*topology.servers, *topology.switches)}
    queues = {switch.name: switch.queue or topology.queue for switch in topology.switches}
    for link in topology.links:
        for own, peer in ((link.a, link.b), (link.b, link.a)):
            ports[own.node].append(_port_plan(link, own, peer, numbers, addresses, queues.get(own.node)))
    routes = _switch_routes(topology, addresses)
    nodes = [_server_plan(server.name, ports[server.name], queues) for server in topology.servers]
    nodes += [
        NodePlan(name=s.name, role=s.role, ports=tuple(ports[s.name]), routes=routes[s.name],
                 hash_seed=hash_seed(seed, s.name if hash_seeds == "per_switch" else hash_seeds))
        for s in topology.switches
    ]
    return Plan(topology=topology, seed=seed, nodes=tuple(nodes))


def access_prefixes(topology: Topology) -> dict[str, str]:
    """Switch with servers -> its NICs' prefix, in ascending order: number n has the n-th prefix of its size."""
    return _addresses(topology).prefix


def via_of(routes: Sequence[Route], prefixes: Sequence[str]) -> list[tuple[str, ...]]:
    """The interfaces by which a switch with `routes` sends to each of `prefixes`; () where no route leads."""
    return lookup({route.prefix: route.via for route in routes}, prefixes)


def routes_without(plan: Plan, dead: Collection[Link]) -> dict[str, tuple[Route, ...]]:
    """Switch -> the routes that the plan would have without the `dead` links, as a link-state protocol finds them."""
    return _switch_routes(plan.topology, _addresses(plan.topology), dead)


def hash_seed(seed: int, switch: str) -> int:
    """Non-zero 32-bit ECMP seed of a switch (0 would mean the kernel's own, shared by all namespaces)."""
    digest = hashlib.sha256(f"{seed}/{switch}".encode()).digest()
    return int.from_bytes(digest[:4], "big") or 1


def _number_ports(topology: Topology) -> dict[Port, int]:
    ports = [port for link in topology.links for port in (link.a, link.b)]
    return {port: number for number, port in enumerate(ports, start=addressing.FIRST_IFINDEX)}


@dataclass(frozen=True)
class _Addresses:
    of: dict[Port, str]
    prefix: dict[str, str]  # access switch -> its NICs' prefix


def _addresses(topology: Topology) -> _Addresses:
    servers, under = {server.name for server in topology.servers}, topology.access_links
    direct = [link for link in topology.links if link.b.node in servers]
    between = [link for link in topology.links if link.a.node not in servers and link.b.node not in servers]
    largest = max(map(len, under.values()), default=0)
    of: dict[Port, str] = {}
    prefixes: dict[str, str] = {}
    for number, (switch, links) in enumerate(under.items()):
        prefix = addressing.access_prefix(number, largest)
        prefixes[switch] = str(prefix)
        for place, link in enumerate(links):
            of[link.b], of[link.a] = addressing.nic_pair(prefix, place)
    for number, link in enumerate(between):
        of[link.a], of[link.b] = addressing.fabric_pair(number)
    for number, link in enumerate(direct):
        of[link.a], of[link.b] = addressing.direct_pair(number)
    return _Addresses(of, prefixes)


def _port_plan(
    link: Link, own: Port, peer: Port, numbers: dict[Port, int], addresses: _Addresses, queue: QueueProfile | None
) -> PortPlan:
    return PortPlan(
        port=own, peer=peer, ifindex=numbers[own], mac=addressing.mac(numbers[own]), address=addresses.of[own],
        peer_address=addresses.of[peer], peer_mac=addressing.mac(numbers[peer]),
        rate_bps=link.rate_bps, delay_ns=link.delay_ns, queue=queue,
    )


def _server_plan(name: str, ports: list[PortPlan], switches: Collection[str]) -> NodePlan:
    """Each port to a switch has a table of its own; without a source address the first of them is used.

    A cable to another GPU reaches that GPU only: its /31 is all there is to route.
    """
    tables = tuple(zip((port for port in ports if port.peer.node in switches), _table_numbers(), strict=False))
    routes = [Route(prefix="0.0.0.0/0", via=(port.port.ifname,)) for port, _ in tables[:1]]
    routes += [Route(prefix="0.0.0.0/0", via=(port.port.ifname,), table=table) for port, table in tables]
    return NodePlan(name=name, role="server", ports=tuple(ports), routes=tuple(routes), rail_tables=tables)


def _table_numbers() -> Iterator[int]:
    return (number for number in itertools.count(RAIL_TABLE) if number not in RESERVED_TABLES)


def _switch_routes(
    topology: Topology, addresses: _Addresses, dead: Collection[Link] = ()
) -> dict[str, tuple[Route, ...]]:
    switches = [switch.name for switch in topology.switches]
    adjacency: dict[str, list[tuple[str, str, int]]] = {name: [] for name in switches}
    for link in topology.links:
        if link.a.node in adjacency and link.b.node in adjacency and link not in dead:
            adjacency[link.a.node].append((link.b.node, link.a.ifname, link.cost))
            adjacency[link.b.node].append((link.a.node, link.b.ifname, link.cost))
    table = next_hops(adjacency, list(addresses.prefix))
    return {name: _as_routes(table.get(name, {}), addresses.prefix) for name in switches}


def _as_routes(targets: dict[str, tuple[str, ...]], prefix: dict[str, str]) -> tuple[Route, ...]:
    default, exceptions = with_default(targets)
    by_prefix = {prefix[target]: via for target, via in exceptions.items()}
    routes = [Route(prefix=found, via=via) for found, via in aggregated(by_prefix)]
    if default:
        routes.append(Route(prefix="0.0.0.0/0", via=default))
    return tuple(routes)
