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
from emu.switch.leaves import Leaf, leaves, numbering
from emu.topology.model import Port
from emu.topology.plan import NodePlan, Plan, PortPlan, Route, via_of

# ddc.h
NICS_MAX, SWITCHES_MAX, LEAVES_MAX, GROUPS_MAX = 65536, 1024, 512, 4096
LINKS_MAX, PAIRS_MAX, PORTS_MAX, SLOTS_MAX = 128, 1 << 20, 65536, 8192
BYTE_SHIFT = 20
ROUTE = struct.Struct("=II")


class Members:
    """The boxes of a plan: `switches` in order, `leaves` (NCPs) by number, `links`: ports between switches.

    TopologyError if there are more than the program has room for.
    """

    def __init__(self, plan: Plan) -> None:
        self.leaves: list[Leaf] = leaves(plan)
        self.switches: list[NodePlan] = [node for node in plan.nodes if node.forwards]
        servers = {server.name for server in plan.topology.servers}
        self.links: list[PortPlan] = [port for node in self.switches for port in node.ports if port.peer.node not in servers]
        self.numbers = numbering(plan)
        self.nics = 1 + max(self.nic_number(port) for leaf in self.leaves for port in leaf.down)
        self.pairs = len(self.leaves) * self.nics
        self.first_free_ifindex = max(port.ifindex for node in plan.nodes for port in node.ports) + 1
        self._check()

    def nic_number(self, port: PortPlan) -> int:
        """Of the NIC behind a leaf's port: its place among the NICs' /31 networks."""
        return int(ipaddress.IPv4Address(port.address)) - self.numbers.network >> 1

    def reach(self, node: NodePlan, routes: Sequence[Route]) -> list[tuple[int, ...]]:
        """By leaf: interface numbers of the ports towards it at equal cost; none to itself or where no route leads. A route by
        way of another leaf, as a spine whose cable is dead has, is none: an NCP puts cells together, it passes none on."""
        ports = {port.port.ifname: port for port in node.ports}
        leaves = {leaf.name for leaf in self.leaves}
        return [
            tuple(ports[name].ifindex for name in via
                  if leaf.name != node.name and ports[name].peer.node not in leaves - {leaf.name})
            for leaf, via in zip(self.leaves, via_of(routes, self.numbers.prefixes), strict=True)
        ]

    def _check(self) -> None:
        widest = max(len(node.ports) for node in self.switches)
        interfaces = self.first_free_ifindex + 2 * len(self.leaves)
        for count, room, what in (
            (len(self.switches), SWITCHES_MAX, "switches"), (self.nics, NICS_MAX - 1, "numbers of NICs"),
            (widest, LINKS_MAX, "ports on one switch"), (self.pairs, PAIRS_MAX, "pairs of leaf and NIC"),
            (interfaces, PORTS_MAX, "interfaces"),
        ):
            if count > room:
                raise TopologyError(f"{count} {what}; lb=ddc has room for {room}: use a smaller fabric, or another lb")


class Tables:
    """The maps of one fabric."""

    def __init__(self, fabric: Fabric, loaded: Loaded, members: Members) -> None:
        self._fabric, self._loaded, self._members = fabric, loaded, members
        self._numbers = {node.name: number for number, node in enumerate(members.switches)}
        self._groups: dict[tuple[int, ...], int] = {}

    def load(self, voqs: Mapping[str, Voq], credit_speed: float, **settings: int) -> None:
        """Everything as planned, counters at 0; `settings` are other fields of ddc_settings, lengths in them of IP."""
        self._loaded.map("ddc_settings").update(0, network=self._members.numbers.network, nics=self._members.nics, **settings)
        for name, entries in (("ddc_pairs", self._members.pairs), ("ddc_slots", SLOTS_MAX)):
            table = self._loaded.map(name)
            table.write_from(0, bytes(entries * table.layout.value.size))
        for node in self._members.switches:
            self._load_ports(node.name, node.ports)
            self._loaded.map("ddc_switches").update(self._numbers[node.name])
        for leaf in self._members.leaves:
            self._load_leaf(leaf, voqs[leaf.name], credit_speed)
        self.reroute({node.name: node.routes for node in self._members.switches})

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """What the switches named in `routes` reach leaves by from now on."""
        for node in self._members.switches:
            if node.name in routes:
                row = [ROUTE.pack(self._group(ports), 0) for ports in self._members.reach(node, routes[node.name])]
                self._loaded.map("ddc_routes").write_from(self._numbers[node.name] * LEAVES_MAX, b"".join(row))

    def switch(self, name: str) -> object:
        """struct ddc_switch of ddc.h."""
        return self._loaded.map("ddc_switches").read(self._numbers[name])

    def cells_sent(self) -> dict[Port, int]:
        """Out of every port between switches."""
        ports = self._loaded.map("ddc_ports")
        return {port.port: ports.read(port.ifindex).cells for port in self._members.links}

    def nic(self, port: PortPlan) -> object:
        """struct ddc_nic of ddc.h, of the NIC behind a leaf's port."""
        return self._loaded.map("ddc_nics").read(self._members.nic_number(port))

    def _load_ports(self, node: str, ports: Sequence[PortPlan]) -> None:
        for port in ports:
            self._loaded.map("ddc_ports").update(port.ifindex, at=self._numbers[node] + 1)

    def _load_leaf(self, leaf: Leaf, voq: Voq, credit_speed: float) -> None:
        self._load_ports(leaf.name, (voq.enter, voq.leave))
        self._loaded.map("ddc_switches").update(self._numbers[leaf.name], leaf=leaf.number + 1, voq_ifindex=voq.enter.ifindex)
        for port in leaf.down:
            rate_bytes = self._fabric.settings[port.port].rate_bytes * credit_speed
            ethernet = bytes.fromhex((port.peer_mac + port.mac).replace(":", "")) + b"\x08\0"
            self._loaded.map("ddc_nics").update(
                self._members.nic_number(port), head=struct.unpack("=2Q", bytes(2) + ethernet), ifindex=port.ifindex,
                leaf=leaf.number, byte_ns=math.ceil(1e9 * (1 << BYTE_SHIFT) / rate_bytes),
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
