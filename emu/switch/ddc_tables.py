"""The cell fabric's maps (emu/bpf/ddc.h), filled from the plan: who is where, and over which ports a leaf is reached."""

from __future__ import annotations

import ipaddress
import math
import struct
from collections.abc import Mapping, Sequence

from emu.bpf.loader import Loaded
from emu.errors import TopologyError
from emu.fabric.fabric import Fabric
from emu.fabric.voq import Voq
from emu.topology import addressing
from emu.topology.plan import NodePlan, Plan, PortPlan, Route

# ddc.h
NICS_MAX, SWITCHES_MAX, LEAVES_MAX, GROUPS_MAX = 65536, 1024, 512, 4096
LINKS_MAX, PAIRS_MAX, PORTS_MAX, SLOTS_MAX = 128, 1 << 20, 65536, 8192
BYTE_SHIFT = 20
NETWORK = int(addressing.NIC_NET.network_address)
DEFAULT_ROUTE = "0.0.0.0/0"
ROUTE = struct.Struct("=II")


class Members:
    """The switches and NICs of a plan with their numbers. TopologyError if there are more than the program has room for."""

    def __init__(self, plan: Plan) -> None:
        servers = {server.name for server in plan.topology.servers}
        self.switches = [node for node in plan.nodes if node.forwards]
        self.down = {node.name: [port for port in node.ports if port.peer.node in servers] for node in self.switches}
        self.up = {node.name: [port for port in node.ports if port.peer.node not in servers] for node in self.switches}
        self.leaves = [node.name for node in self.switches if self.down[node.name]]
        self._prefixlen = addressing.access_prefix(0, max(map(len, self.down.values()))).prefixlen
        self.prefix = {name: self._prefix(self.down[name][0]) for name in self.leaves}
        self.nics = 1 + max(nic_number(port) for name in self.leaves for port in self.down[name])
        self.pairs = (1 + max(map(self.leaf_number, self.leaves))) * self.nics
        self.ports = max(port.ifindex for node in plan.nodes for port in node.ports) + 1
        self._check()

    def leaf_number(self, leaf: str) -> int:
        return int(ipaddress.ip_network(self.prefix[leaf]).network_address) - NETWORK >> 32 - self._prefixlen

    def reach(self, node: NodePlan, routes: Sequence[Route]) -> dict[int, tuple[int, ...]]:
        """Leaf number -> interface numbers of the ports towards it at equal cost; none where no route leads."""
        number = {port.port.ifname: port.ifindex for port in node.ports}
        via = {route.prefix: tuple(number[name] for name in route.via) for route in routes}
        return {
            self.leaf_number(leaf): via.get(prefix, via.get(DEFAULT_ROUTE, ()))
            for leaf, prefix in self.prefix.items() if leaf != node.name
        }

    def _prefix(self, port: PortPlan) -> str:
        return str(ipaddress.ip_network((port.address, self._prefixlen), strict=False))

    def _check(self) -> None:
        widest = max(len(ports) for ports in self.up.values())
        for count, room, what in (
            (len(self.switches), SWITCHES_MAX, "switches"), (len(self.leaves), LEAVES_MAX, "leaves"),
            (self.nics, NICS_MAX - 1, "numbers of NICs"), (widest, LINKS_MAX, "links of one switch to others"),
            (self.pairs, PAIRS_MAX, "pairs of leaf and NIC"), (self.ports + 2 * len(self.leaves), PORTS_MAX, "interfaces"),
        ):
            if count > room:
                raise TopologyError(f"{count} {what}; lb=ddc has room for {room}: use fewer or larger leaves, or another lb")


class Tables:
    """The maps of one fabric."""

    def __init__(self, fabric: Fabric, loaded: Loaded, members: Members) -> None:
        self._fabric, self._loaded, self._members = fabric, loaded, members
        self._numbers = {node.name: number for number, node in enumerate(members.switches)}
        self._groups: dict[tuple[int, ...], int] = {}

    def load(self, voqs: Mapping[str, Voq], credit_speed: float, **settings: int) -> None:
        """Everything as planned, counters at 0; `settings` are fields of ddc_settings, lengths of frames in them of IP."""
        self._loaded.map("ddc_settings").update(0, network=NETWORK, nics=self._members.nics, **settings)
        for name, entries in (("ddc_pairs", self._members.pairs), ("ddc_slots", SLOTS_MAX)):
            table = self._loaded.map(name)
            table.write_from(0, bytes(entries * table.layout.value.size))
        for node in self._members.switches:
            self._load_switch(node, voqs.get(node.name))
        for leaf in self._members.leaves:
            for port in self._members.down[leaf]:
                self._load_nic(port, leaf, credit_speed)
        self.reroute({node.name: node.routes for node in self._members.switches})

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """What the switches named in `routes` reach leaves by from now on."""
        for node in self._members.switches:
            if node.name in routes:
                reach = self._members.reach(node, routes[node.name])
                row = [self._group(reach.get(leaf, ())) for leaf in range(1 + max(reach, default=0))]
                packed = b"".join(ROUTE.pack(group, 0) for group in row)
                self._loaded.map("ddc_routes").write_from(self._numbers[node.name] * LEAVES_MAX, packed)

    def switch(self, name: str) -> object:
        """struct ddc_switch of ddc.h."""
        return self._loaded.map("ddc_switches").read(self._numbers[name])

    def cells_sent(self, port: PortPlan) -> int:
        return self._loaded.map("ddc_ports").read(port.ifindex).cells

    def nic(self, port: PortPlan) -> object:
        """struct ddc_nic of ddc.h, of the NIC behind a leaf's port."""
        return self._loaded.map("ddc_nics").read(nic_number(port))

    def _load_switch(self, node: NodePlan, voq: Voq | None) -> None:
        number, ports = self._numbers[node.name], [*node.ports, *((voq.enter, voq.leave) if voq else ())]
        for port in ports:
            self._loaded.map("ddc_ports").update(port.ifindex, at=number + 1)
        leaf = {"leaf": self._members.leaf_number(node.name) + 1, "voq_ifindex": voq.enter.ifindex} if voq else {}
        self._loaded.map("ddc_switches").update(number, **leaf)

    def _load_nic(self, port: PortPlan, leaf: str, credit_speed: float) -> None:
        rate_bytes = self._fabric.settings[port.port].rate_bytes * credit_speed
        ethernet = bytes.fromhex((port.peer_mac + port.mac).replace(":", "")) + b"\x08\0"
        self._loaded.map("ddc_nics").update(
            nic_number(port), head=struct.unpack("=2Q", bytes(2) + ethernet), byte_ns=math.ceil(1e9 * (1 << BYTE_SHIFT) / rate_bytes),
            ifindex=port.ifindex, leaf=self._members.leaf_number(leaf),
        )

    def _group(self, ports: tuple[int, ...]) -> int:
        """Number + 1 of the group with these ports; 0 for none."""
        if not ports:
            return 0
        if ports not in self._groups:
            if len(self._groups) == GROUPS_MAX:
                raise TopologyError(f"more than {GROUPS_MAX} sets of equal ports; use another lb")
            self._groups[ports] = len(self._groups)
            padded = [*ports, *[0] * (LINKS_MAX - len(ports))]
            self._loaded.map("ddc_groups").update(self._groups[ports], count=len(ports), ports=padded)
        return self._groups[ports] + 1


def nic_number(port: PortPlan) -> int:
    """Of the NIC behind a leaf's port: its place among the NICs' /31 networks."""
    return int(ipaddress.IPv4Address(port.address)) - NETWORK >> 1
