"""Scale-up domains as real links: what joins the GPUs of one or several servers besides their NICs.

    full_mesh        a cable between any two GPUs of a domain: 1/(n-1) of a GPU's bandwidth each
    hybrid_mesh      two halves, each fully meshed, and a cable between counterparts: 1/(n/2) each. With 8 it is DGX-1's
                     hybrid cube-mesh, for which NVLink 1 had just the 4 links. Any other pair is relayed by a GPU
    switch           every GPU to one switch, or to one in each of `planes`
    two_tier_switch  a switch per server (and plane), these to `spines` above, as much up as down: a super-node

Where a technology has not the number of links that a mesh divides by, its bandwidth is divided all the same. Several links
between two devices are one link here (`Link.cables`), and all chips of a plane one switch. More than one spine means ECMP by
flow, as for any switch here; real scale-up fabrics spread finer, which one spine with all the bandwidth stands for.

GPUs don't forward: a relayed message is received and sent again (`hops`). Switches are lossless by credits in reality; here
by a buffer that is bigger than the windows in flight, so that nothing pushes back into a sender but its own window.
Source: the reference article on direct and switched topologies; emu.topology.scale_up_profiles for the figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from emu.errors import TopologyError, unknown
from emu.topology.model import Link, Port, Server, Switch, Topology
from emu.topology.naming import ifname, scale_up_ifname
from emu.topology.queue_profile import QueueProfile
from emu.topology.scale_up_profiles import Technology
from emu.units import mib

MESHES, SWITCHED = ("full_mesh", "hybrid_mesh"), ("switch", "two_tier_switch")
KINDS = ("none", *MESHES, *SWITCHED)
LOSSLESS = QueueProfile(buffer_bytes=mib(64))
Hop = tuple[Port, Port]  # a message's source and target, as emu.nic.work_request wants them


@dataclass(frozen=True, kw_only=True)
class ScaleUp:
    """The description of every domain. GPUs are numbered through all servers; `domain_gpus` consecutive ones are a domain.

    planes: of switches, each with an equal share of the bandwidth; spines: of each plane, two_tier_switch only.
    TopologyError names what doesn't fit and what would.
    """

    kind: str
    technology: Technology
    gpus_per_server: int
    domain_gpus: int
    planes: int = 1
    spines: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("scale_up", self.kind, KINDS)
        for field in ("gpus_per_server", "planes", "spines"):
            if getattr(self, field) < 1:
                raise TopologyError(f"{field}={getattr(self, field)}; want at least 1")
        _check_size(self)
        if self.planes > 1 and self.kind not in SWITCHED:
            raise TopologyError(f"planes={self.planes} with scale_up={self.kind}: only switches come in planes; want 1")

    @property
    def degree(self) -> int:
        """Ports of a GPU to its domain."""
        return {"none": 0, "full_mesh": self.domain_gpus - 1, "hybrid_mesh": self.domain_gpus // 2}.get(self.kind, self.planes)

    @property
    def port_bps(self) -> int:
        """Of each of these: the accelerator's bandwidth, divided."""
        return self.technology.rate_bps // self.degree

    @property
    def direct_ns(self) -> int:
        """One way between two GPUs with a cable, or under one switch."""
        technology = self.technology
        return technology.link_ns if self.kind in MESHES else 2 * technology.link_ns + technology.switch_ns

    def domain(self, gpu: int) -> range:
        """The GPUs of the domain of GPU `gpu`."""
        first = gpu - gpu % self.domain_gpus
        return range(first, first + self.domain_gpus)

    def hops(self, source: int, target: int, plane: int = 0) -> tuple[Hop, ...]:
        """(source port, target port) of each message that takes data from GPU to GPU: one, or two with a relay between."""
        if source == target or target not in self.domain(source):
            raise TopologyError(f"GPUs {source} and {target} are not two of a domain of {self.domain_gpus}; want such a pair")
        way = (source, target) if self._adjacent(source, target) else (source, self._relay(source, target), target)
        return tuple((self._port(a, b, plane), self._port(b, a, plane)) for a, b in zip(way, way[1:], strict=False))

    def switch_port(self, gpu: int) -> Port:
        """A GPU's port to its switch, that of the first plane; TopologyError where cables go from GPU to GPU."""
        if self.kind not in SWITCHED:
            raise TopologyError(f"scale_up={self.kind} has no switch; want {' or '.join(SWITCHED)}")
        return self._port(gpu, gpu, 0)

    def one_way_ns(self, source: int, target: int) -> int:
        """Propagation from GPU to GPU: links and switches of the way, and nothing for a relay's own work."""
        technology, hops = self.technology, self.hops(source, target)
        if self.kind == "two_tier_switch" and not self._same_server(source, target):
            return 4 * technology.link_ns + 3 * technology.switch_ns
        return len(hops) * self.direct_ns

    def switches(self, gpus: int) -> Iterator[Switch]:
        """Of `gpus` GPUs, those with GPUs first; each has just the ports that it needs."""
        ports = Counter(port.node for link in self.links(gpus) for port in (link.a, link.b) if not port.node.startswith("srv"))
        for name, degree in ports.items():
            yield Switch(name=name, role="nvspine" if name.startswith("nvspine") else "nvswitch", radix=degree, queue=LOSSLESS)

    def links(self, gpus: int) -> Iterator[Link]:
        """Of `gpus` GPUs, which must be whole domains."""
        if self.kind == "none":
            return
        if gpus % self.domain_gpus:
            raise TopologyError(f"domain_gpus={self.domain_gpus} does not divide the {gpus} GPUs; want whole domains")
        for gpu in range(gpus):
            yield from self._cables(gpu) if self.kind in MESHES else self._downlinks(gpu)
        if self.kind == "two_tier_switch":
            for leaf in range(gpus // self.gpus_per_server):
                yield from self._uplinks(leaf)

    def _cables(self, gpu: int) -> Iterator[Link]:
        for peer in range(gpu + 1, self.domain(gpu).stop):
            if self._adjacent(gpu, peer):
                yield self._link(self._port(gpu, peer, 0), self._port(peer, gpu, 0), self.port_bps, self.technology.link_ns)

    def _downlinks(self, gpu: int) -> Iterator[Link]:
        unit = self.domain_gpus if self.kind == "switch" else self.gpus_per_server
        name = "nvsw" if self.kind == "switch" else "nvleaf"
        delay_ns = self.technology.link_ns + self.technology.switch_ns // 2  # every switch has two links on a way
        for plane in range(self.planes):
            down = Port(f"{name}{gpu // unit}{self._suffix(plane)}", ifname("down", gpu % unit))
            yield self._link(self._port(gpu, gpu, plane), down, self.port_bps, delay_ns)

    def _uplinks(self, leaf: int) -> Iterator[Link]:
        domain, place = divmod(leaf, self.domain_gpus // self.gpus_per_server)
        rate_bps = self.gpus_per_server * self.port_bps // self.spines
        delay_ns = self.technology.link_ns + self.technology.switch_ns
        for plane in range(self.planes):
            for spine in range(self.spines):
                up = Port(f"nvleaf{leaf}{self._suffix(plane)}", ifname("up", spine))
                down = Port(f"nvspine{domain * self.spines + spine}{self._suffix(plane)}", ifname("down", place))
                yield self._link(up, down, rate_bps, delay_ns)

    def _link(self, a: Port, b: Port, rate_bps: int, delay_ns: int) -> Link:
        cable_bps = self.technology.rate_bps // self.technology.links
        return Link(a=a, b=b, rate_bps=rate_bps, delay_ns=delay_ns, cables=-(-rate_bps // cable_bps))

    def _port(self, gpu: int, peer: int, plane: int) -> Port:
        server, local = divmod(gpu, self.gpus_per_server)
        towards = {"peer": peer % self.domain_gpus} if self.kind in MESHES else {"plane": self._suffix(plane)}
        return Port(f"srv{server}", scale_up_ifname(local, **towards))

    def _suffix(self, plane: int) -> str:
        return f"p{plane}" if self.planes > 1 else ""

    def _adjacent(self, a: int, b: int) -> bool:
        half = self.domain_gpus // 2
        return self.kind != "hybrid_mesh" or a % half == b % half or a % self.domain_gpus // half == b % self.domain_gpus // half

    def _relay(self, source: int, target: int) -> int:
        """The counterpart of one of them; which one alternates, so that all are used alike."""
        half, first = self.domain_gpus // 2, self.domain(source).start
        at = source if (source + target) % 2 else target
        return first + (at - first + half) % self.domain_gpus

    def _same_server(self, a: int, b: int) -> bool:
        return a // self.gpus_per_server == b // self.gpus_per_server


def with_scale_up(topology: Topology, scale_up: ScaleUp) -> Topology:
    """The same cluster, its servers' GPUs joined; links and switches that were there keep their places."""
    wrong = [server for server in topology.servers if server.gpus != scale_up.gpus_per_server]
    if wrong:
        raise TopologyError(f"{wrong[0].name} has {wrong[0].gpus} GPUs; want {scale_up.gpus_per_server}, as scale_up has them")
    return replace(
        topology,
        switches=(*topology.switches, *scale_up.switches(topology.gpus)),
        links=(*topology.links, *scale_up.links(topology.gpus)),
    )


def scale_up_alone(servers: int, scale_up: ScaleUp, path_mtu_bytes: int = 4096) -> Topology:
    """Servers without NICs: only their GPUs' domains. TopologyError for kind none, which would leave nothing."""
    if scale_up.kind == "none":
        raise TopologyError("scale_up=none leaves servers without NICs unconnected; want full_mesh, hybrid_mesh or a switch")
    gpus = servers * scale_up.gpus_per_server
    return Topology(
        name=f"scale_up_{scale_up.kind}",
        servers=tuple(Server(name=f"srv{i}", gpus=scale_up.gpus_per_server) for i in range(servers)),
        switches=tuple(scale_up.switches(gpus)), links=tuple(scale_up.links(gpus)), queue=LOSSLESS, path_mtu_bytes=path_mtu_bytes,
    )


def _check_size(scale_up: ScaleUp) -> None:
    gpus, technology = scale_up.domain_gpus, scale_up.technology
    if scale_up.kind == "none":
        return
    if not 2 <= gpus <= technology.domain_max:
        raise TopologyError(f"domain_gpus={gpus}; {technology.title} joins 2 to {technology.domain_max}")
    if scale_up.kind == "hybrid_mesh" and (gpus % 2 or gpus < 4):
        fits = max(4, gpus // 2 * 2)
        raise TopologyError(f"domain_gpus={gpus} has no two halves of 2 or more, as scale_up=hybrid_mesh wants; {fits} would fit")
    if scale_up.kind == "two_tier_switch" and gpus % scale_up.gpus_per_server:
        raise TopologyError(
            f"domain_gpus={gpus} is no multiple of gpus_per_server={scale_up.gpus_per_server}, as scale_up=two_tier_switch wants "
            f"(a switch per server); {max(1, gpus // scale_up.gpus_per_server) * scale_up.gpus_per_server} would fit"
        )
