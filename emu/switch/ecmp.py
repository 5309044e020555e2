"""Equal-cost multipath: a hash of the flow chooses its uplink, once and for all.

ecmp   the kernel's own, over the 5-tuple (fib_multipath_hash_policy=1), with the switch's seed where the kernel has one
eecmp  also hashes the destination queue pair, as Meta's RoCE fabric does: Linux can't look into the BTH, a program can

Sources: Linux Documentation/networking/ip-sysctl.rst; Gangidi et al., RDMA over Ethernet for Distributed AI Training at
Meta Scale, SIGCOMM 2024 (E-ECMP; from memory); domain facts 6.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_GETROUTE

from emu.errors import FabricError
from emu.fabric.attributes import attributes, u32
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import NLM_F_REQUEST, NLMSG_ERROR
from emu.roce.wire import PROTOCOL_UDP, ROCE_UDP_PORT
from emu.switch.leaves import Leaf
from emu.switch.mode import Mode
from emu.switch.oracle import EnhancedHash, Model
from emu.switch.tables import Tables
from emu.topology.model import Port

HEADER_BYTES, TYPE_OFFSET = 16, 4  # struct nlmsghdr
RTMSG = struct.Struct("=8BI")
RTA_DST, RTA_SRC, RTA_IIF, RTA_OIF, RTA_IP_PROTO, RTA_SPORT, RTA_DPORT = 1, 2, 3, 4, 27, 28, 29  # linux/rtnetlink.h


@dataclass(frozen=True)
class Ecmp(Mode):
    """The kernel's FIB. The program only takes away a hash that a packet may have brought from its sender."""

    program = "pick_ecmp"


@dataclass(frozen=True)
class EnhancedEcmp(Mode):
    """5-tuple and destination QP, under the switch's seed."""

    program = "pick_eecmp"

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        return EnhancedHash(leaf.node.hash_seed)


def fib_pick(fabric: Fabric, port: Port, source: str, target: str, udp_sport: int) -> Port:
    """Where a switch's FIB sends a RoCE flow that comes in by its `port`, without sending anything.

    What `ip route get TARGET from SOURCE iif PORT ipproto udp sport N dport 4791` shows. FabricError: nowhere.
    """
    answer = fabric.netlink(port.node).ask(_route_request(fabric.ports[port].ifindex, source, target, udp_sport))
    if struct.unpack_from("=H", answer, TYPE_OFFSET)[0] == NLMSG_ERROR:
        raise FabricError(f"{port.node}: no route for {source} to {target} from {port.ifname}")
    oif = u32(attributes(answer, HEADER_BYTES + RTMSG.size)[RTA_OIF])
    return next(own.port for own in fabric.ports.values() if own.ifindex == oif)


def _route_request(iif: int, source: str, target: str, udp_sport: int) -> bytes:
    """RTM_GETROUTE; pyroute2 0.9.7 knows no attribute for the ports."""
    body = RTMSG.pack(socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    values = {
        RTA_DST: socket.inet_aton(target), RTA_SRC: socket.inet_aton(source), RTA_IIF: struct.pack("=I", iif),
        RTA_IP_PROTO: bytes([PROTOCOL_UDP]), RTA_SPORT: struct.pack("!H", udp_sport), RTA_DPORT: struct.pack("!H", ROCE_UDP_PORT),
    }
    for kind, value in values.items():
        body += struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", HEADER_BYTES + len(body), RTM_GETROUTE, NLM_F_REQUEST, 0, 0) + body
