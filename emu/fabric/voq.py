"""Virtual output queues of a switch: a veth pair inside it, whose sending end holds packets back until their departure time.

Its fair queue has one flow for each hash a BPF program gives a packet (an egress port's number), kept in order of time; a
flow whose time has not come holds back no other. What comes out of the other end is the packet that may go. Frames without
payload count their full length here too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emu.fabric import link, sched_fq
from emu.fabric.netlink import CHANGE, CREATE, Batch, Netlink
from emu.fabric.netns import NETNS_DIR
from emu.fabric.queue import FQ_HANDLE, FQ_LIMIT_PACKETS
from emu.fabric.size_table import size_table
from emu.fabric.wait import wait_until_empty
from emu.topology import addressing
from emu.topology.model import Port
from emu.topology.plan import PortPlan

FLOWS = 1 << 17  # one for each 17-bit hash
HORIZON_US = 1 << 31  # half an hour: nothing is dropped for waiting long
UP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Voq:
    """`enter`: where packets are sent out of, `leave`: where they come in again."""

    enter: PortPlan
    leave: PortPlan


def voq_of(switch: str, first_ifindex: int) -> Voq:
    """The pair that `switch` gets, with this interface number and the next."""
    ports = Port(switch, "voq0"), Port(switch, "voq1")
    return Voq(*(_end(ports[i], ports[1 - i], first_ifindex + i, first_ifindex + 1 - i) for i in (0, 1)))


def install(netlink: Netlink, voq: Voq, mtu_bytes: int, elided: tuple[int, int] | None) -> None:
    """Make it and bring it up; it runs a little later. elided: (length of a frame without its payload, length it counts)."""
    descriptor = os.open(NETNS_DIR / netlink.netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        batch = Batch()
        link.create_pair(batch, voq.enter, voq.leave, descriptor, mtu_bytes)
        _add_fq(batch, voq.enter, elided)
        for port in (voq.enter, voq.leave):
            link.bring_up(batch, port.ifindex, str(port.port))
        netlink.run(batch)
    finally:
        os.close(descriptor)


def wait_until_running(voqs: Mapping[str, Voq], netlinks: Mapping[str, Netlink]) -> None:
    """FabricError if they don't come up."""
    wait_until_empty(
        lambda: [port for name, voq in voqs.items()
                 for port in link.not_running((voq.enter, voq.leave), link.read(netlinks[name]))],
        UP_TIMEOUT_S, "virtual output queues up",
    )


def remove(netlink: Netlink, voq: Voq) -> None:
    """One end takes the other with it."""
    batch, message = Batch(), ifinfmsg()
    message["index"] = voq.enter.ifindex
    batch.add(message, RTM_DELLINK, CHANGE, f"remove {voq.enter.port}")
    netlink.run(batch)


def _end(port: Port, peer: Port, ifindex: int, peer_ifindex: int) -> PortPlan:
    return PortPlan(
        port=port, peer=peer, ifindex=ifindex, mac=addressing.mac(ifindex), peer_mac=addressing.mac(peer_ifindex),
        address="", peer_address="", rate_bps=0, delay_ns=0, queue=None,
    )


def _add_fq(batch: Batch, port: PortPlan, elided: tuple[int, int] | None) -> None:
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = port.ifindex, FQ_HANDLE, TC_H_ROOT
    options = sched_fq.get_parameters({"limit": FQ_LIMIT_PACKETS, "flows": FLOWS, "horizon_us": HORIZON_US})
    sizes = [("TCA_STAB", size_table(*elided))] if elided else []
    message["attrs"] = [("TCA_KIND", "fq"), ("TCA_OPTIONS", options), *sizes]
    batch.add(message, RTM_NEWQDISC, CREATE, f"fq on {port.port}")
