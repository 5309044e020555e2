"""A cluster as plain data: nodes, ports, links. Frozen and validated where it is made; nothing here knows a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from emu.errors import TopologyError
from emu.topology.naming import checked_ifname
from emu.topology.queue_profile import QueueProfile
from emu.units import gbps

RATE_MIN_BPS, RATE_MAX_BPS = gbps(1), gbps(1600)


@dataclass(frozen=True, order=True)
class Port:
    """One end of a link: the node's name and the interface's name inside that node."""

    node: str
    ifname: str

    def __post_init__(self) -> None:
        checked_ifname(self.ifname)

    def __str__(self) -> str:
        return f"{self.node}:{self.ifname}"

    @classmethod
    def parse(cls, text: str) -> Port:
        """The inverse of str(); TopologyError for what is no NODE:INTERFACE."""
        node, colon, ifname = text.partition(":")
        if not node or not colon:
            raise TopologyError(f"{text!r} is no port; want NODE:INTERFACE, such as leaf0:up0")
        return cls(node, ifname)


@dataclass(frozen=True, kw_only=True)
class Server:
    """One operating system with `gpus` accelerators, one NIC (rail0 … rail<gpus-1>) each."""

    name: str
    gpus: int

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise TopologyError(f"{self.name} has {self.gpus} GPUs; want at least 1")


@dataclass(frozen=True, kw_only=True)
class Switch:
    """`role` is the field's word (leaf, spine, nvswitch, …); `radix` is how many ports the box has.

    queue=None: its ports have the topology's queue.
    """

    name: str
    role: str
    radix: int
    queue: QueueProfile | None = None


@dataclass(frozen=True, kw_only=True)
class Link:
    """A cable; both directions have `rate_bps` (nominal bit/s) and `delay_ns` (one way).

    With `cables` more than 1, so many that act as one, and have that rate in all. `cost` is what a link-state protocol adds
    up along a path; only paths of the least cost are used.
    """

    a: Port
    b: Port
    rate_bps: int
    delay_ns: int = 0
    cables: int = 1
    cost: int = 1

    def __post_init__(self) -> None:
        if self.cost < 1:
            raise TopologyError(f"link {self.a} - {self.b}: cost {self.cost}; want at least 1")
        if self.cables < 1:
            raise TopologyError(f"link {self.a} - {self.b}: {self.cables} cables; want at least 1")
        if not RATE_MIN_BPS <= self.rate_bps / self.cables <= RATE_MAX_BPS:
            where = f" on each of {self.cables} cables" if self.cables > 1 else ""
            each_gbps = self.rate_bps / self.cables / 1e9
            raise TopologyError(f"link {self.a} - {self.b}: rate {each_gbps:g} Gb/s{where}; want 1 to 1600 Gb/s")
        if self.delay_ns < 0:
            raise TopologyError(f"link {self.a} - {self.b}: delay {self.delay_ns} ns; want 0 or more")


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Nodes and links in a fixed order, with the queue that every switch port has unless its switch has another.

    path_mtu_bytes is RoCE's (256 … 4096): payload bytes per packet. TopologyError: a port used twice, a link to a
    node that isn't there, more links than a switch has ports, a server without a link, or as end b of one from a switch.
    """

    name: str
    servers: tuple[Server, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    queue: QueueProfile
    path_mtu_bytes: int = 4096

    def __post_init__(self) -> None:
        if self.path_mtu_bytes not in (256, 512, 1024, 2048, 4096):
            raise TopologyError(f"mtu={self.path_mtu_bytes} is no RoCE path MTU; want 256, 512, 1024, 2048 or 4096")
        _check_names(self)
        _check_ports(self)
        _check_servers(self)

    @property
    def gpus(self) -> int:
        return sum(server.gpus for server in self.servers)

    def switches_of(self, role: str) -> tuple[Switch, ...]:
        return tuple(switch for switch in self.switches if switch.role == role)

    @property
    def access_links(self) -> dict[str, list[Link]]:
        """Switch with servers -> the cables to them, switches and cables in the order of `links`."""
        servers, found = {server.name for server in self.servers}, {}
        for link in self.links:
            if link.a.node in servers and link.b.node not in servers:
                found.setdefault(link.b.node, []).append(link)
        return found

    def links_at(self, port: Port) -> list[Link]:
        """The cable that is plugged in at `port`, if any."""
        return [link for link in self.links if port in (link.a, link.b)]

    def peer(self, port: Port) -> Port:
        """The port at the other end of `port`'s cable; KeyError if nothing is plugged in."""
        for link in self.links:
            if port == link.a:
                return link.b
            if port == link.b:
                return link.a
        raise KeyError(f"{port} has no link")


def nic(server: int, gpu: int) -> Port:
    """The NIC of GPU `gpu` of server `server`."""
    return Port(f"srv{server}", f"rail{gpu}")


def _check_names(topology: Topology) -> None:
    names = Counter(node.name for node in (*topology.servers, *topology.switches))
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise TopologyError(f"node name {twice[0]!r} is used {names[twice[0]]} times; want every name once")
    for port in _ports(topology.links):
        if port.node not in names:
            raise TopologyError(f"link at {port}: there is no node {port.node!r}")


def _check_ports(topology: Topology) -> None:
    uses = Counter(_ports(topology.links))
    for port, count in uses.items():
        if count > 1:
            raise TopologyError(f"port {port} has {count} cables; want one")
    degree = Counter(port.node for port in uses)
    for switch in topology.switches:
        if degree[switch.name] > switch.radix:
            raise TopologyError(
                f"{switch.name} needs {degree[switch.name]} ports but its radix is {switch.radix}; "
                "use fewer links per switch or a bigger radix"
            )


def _check_servers(topology: Topology) -> None:
    servers = {server.name for server in topology.servers}
    for link in topology.links:
        if link.b.node in servers and link.a.node not in servers:
            raise TopologyError(f"link {link.a} - {link.b}: the server is end b; want its NIC as end a, a switch as end b")
    if idle := servers - {port.node for port in _ports(topology.links)}:
        raise TopologyError(f"{min(idle)} has no NIC with a link; want at least one for each server")


def _ports(links: Iterable[Link]) -> Iterable[Port]:
    return (port for link in links for port in (link.a, link.b))
