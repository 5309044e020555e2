"""Path navigation's half in the switch: a table from flow to uplink, which the controller fills.

A flow without an entry, or whose uplink no longer leads to its destination, goes where the kernel's ECMP sends it, and is
counted. Source: reference article (SDN path navigation); Huawei WO2024021990A1; domain facts 7.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emu.errors import UsageError, unknown
from emu.fabric.fabric import Fabric
from emu.roce.flow import udp_source_port
from emu.switch.leaves import Leaf
from emu.switch.mode import Mode
from emu.switch.oracle import HOST_BITS, Model, Table, connection_key, flow_key
from emu.switch.tables import Tables
from emu.topology.model import Port
from emu.topology.plan import PortPlan


@dataclass(frozen=True, kw_only=True)
class FlowPath:
    """What `source` sends to `target` leaves by `uplink`, a port of source's leaf. QP numbers as on the wire.

    The other direction, of its acknowledgements, is a flow of its own.
    """

    source: Port
    target: Port
    source_qp: int
    target_qp: int
    uplink: Port


@dataclass(frozen=True)
class FlowTable(Mode):
    """match: "qp" tells connections of one NIC pair apart by the destination QP, as switches with user-defined fields do;
    "udp_sport" by addresses and UDP source port, which two of them may share."""

    paths: tuple[FlowPath, ...] = ()
    match: str = "qp"

    def __post_init__(self) -> None:
        if self.match not in MATCHES:
            raise unknown("match", self.match, MATCHES)

    @property
    def program(self) -> str:
        return MATCHES[self.match][0]

    def fill(self, tables: Tables) -> None:
        set_paths(tables, self, self.paths)

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        """The mode's own paths, not what a controller has set since."""
        rows = ((path, tables.slots[path.uplink]) for path in self.paths)
        slot_of = {key_of(tables.fabric, self, path): slot for path, (owner, slot) in rows if owner.number == leaf.number}
        return Table(MATCHES[self.match][1], slot_of)


MATCHES = {"qp": ("pick_path_qp", connection_key), "udp_sport": ("pick_path", flow_key)}


def set_paths(tables: Tables, mode: FlowTable, paths: Iterable[FlowPath]) -> None:
    """Set or move these flows' paths, one after the other; others stay. UsageError: an uplink that isn't its source's."""
    flows = tables.flows()
    for path, slot in checked(tables, paths):
        flows.update(key_of(tables.fabric, mode, path), slot=slot)


def checked(tables: Tables, paths: Iterable[FlowPath]) -> Iterator[tuple[FlowPath, int]]:
    ports = tables.fabric.ports
    for path in paths:
        leaf, slot = tables.slots.get(path.uplink, (None, 0))
        if leaf is None or leaf.name != ports[path.source].peer.node:
            raise UsageError(f"{path.source} to {path.target}: {path.uplink} is no uplink of {ports[path.source].peer.node}")
        yield path, slot


def key_of(fabric: Fabric, mode: FlowTable, path: FlowPath) -> int:
    """The map's key: what flow_key() or connection_key() of switch.bpf.c finds in the flow's packets."""
    source, target = fabric.ports[path.source], fabric.ports[path.target]
    if mode.match == "udp_sport":
        return _host(source) << 40 | _host(target) << 16 | udp_source_port(path.source_qp, path.target_qp)
    return fabric.ports[source.peer].ifindex << 48 | _host(target) << 24 | path.target_qp


def _host(port: PortPlan) -> int:
    return int(ipaddress.IPv4Address(port.address)) & HOST_BITS
