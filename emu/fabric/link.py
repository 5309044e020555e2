"""veth pairs: made with numbers, addresses and peers all at once, one queue each way, offloads off.

Segmentation offload would turn one "packet" into 64 KB and every count with it, so it is switched off on both ends and
read back. Source: veth(4), linux/ethtool.h (ETHTOOL_GFEATURES, ETHTOOL_SFEATURES).
"""

from __future__ import annotations

import array
import fcntl
import functools
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg

from emu.errors import FabricError
from emu.fabric.attributes import attributes, text, u32
from emu.fabric.netlink import CHANGE, CREATE, Batch, Netlink
from emu.fabric.sched_prio import QUEUE_PACKETS
from emu.fabric.template import Template, mark_mac, mark_name, mark_number
from emu.topology.plan import PortPlan

LO_IFINDEX = 1
HEADER_BYTES, IFINFMSG_BYTES = 16, 16  # struct nlmsghdr, struct ifinfomsg
IFINDEX_OFFSET, FLAGS_OFFSET = HEADER_BYTES + 4, HEADER_BYTES + 8
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_STATS64, IFLA_NUM_TX_QUEUES = 1, 3, 4, 16, 23, 31  # if_link.h
IF_OPER_UP = 6  # linux/if.h
SIOCETHTOOL = 0x8946
ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GFEATURES, ETHTOOL_SFEATURES = 0x37, 0x1B, 0x3A, 0x3B
ETH_SS_FEATURES = 4
ETH_GSTRING_LEN = 32
OFFLOADS = ("tx-checksum-", "tx-tcp", "tx-udp-segmentation", "tx-generic-segmentation", "tx-gso-list", "tx-sctp-segmentation",
            "rx-gro", "rx-lro", "tx-scatter-gather-fraglist")


def create_pair(batch: Batch, a: PortPlan, b: PortPlan, netns_of_b: int, mtu_bytes: int) -> None:
    """Queue up the veth a-b: sent in a's namespace, b lands in the namespace behind the file descriptor."""
    pair = _pair_template(mtu_bytes).fill(
        ifindex=a.ifindex, name=a.port.ifname, mac=a.mac,
        peer_ifindex=b.ifindex, peer_name=b.port.ifname, peer_mac=b.mac, peer_netns=netns_of_b,
    )
    batch.add_encoded(pair, f"link {a.port} - {b.port}")


def bring_up(batch: Batch, ifindex: int, what: str) -> None:
    """Not part of the creation: a veth refuses to come up before its peer exists."""
    batch.add_encoded(_up_template().fill(ifindex=ifindex), f"{what} up")


def take_down(batch: Batch, ifindex: int, what: str) -> None:
    """What is queued is dropped; the kernel takes the port's routes and neighbours away."""
    batch.add_encoded(_up_template(0).fill(ifindex=ifindex), f"{what} down")


@dataclass(frozen=True)
class LinkState:
    """What a namespace's interface is: flags as in linux/if.h, packets and bytes received since it was made."""

    ifname: str
    mac: str
    mtu_bytes: int
    tx_queues: int
    flags: int
    operstate: int
    received_packets: int
    received_bytes: int


def read(netlink: Netlink) -> dict[int, LinkState]:
    """Interface number -> state, for every link of the namespace."""
    return {u32(raw, IFINDEX_OFFSET): _state(raw) for raw in netlink.dump_raw(ifinfmsg(), RTM_GETLINK)}


def not_running(wanted: Iterable[PortPlan], got: Mapping[int, LinkState]) -> list[str]:
    """The ports whose queue the kernel has not activated yet: until then it drops what is sent, and calls it sent."""
    return [str(port.port) for port in wanted if got[port.ifindex].operstate != IF_OPER_UP]


def mismatches(wanted: Iterable[PortPlan], got: Mapping[int, LinkState], mtu_bytes: int) -> list[str]:
    """One line per port whose name, hardware address, MTU, queue count or state is not the plan's."""
    lines: list[str] = []
    for port in wanted:
        state = got.get(port.ifindex)
        if state is None:
            lines.append(f"{port.port}: no interface number {port.ifindex}")
            continue
        kept = {"name": state.ifname, "address": state.mac, "mtu": state.mtu_bytes, "tx queues": state.tx_queues}
        want = {"name": port.port.ifname, "address": port.mac, "mtu": mtu_bytes, "tx queues": 1}
        lines += [
            f"{port.port}: {knob} asked {want[knob]}, kernel keeps {kept[knob]}" for knob in want if kept[knob] != want[knob]
        ]
        if not state.flags & IFF_UP:
            lines.append(f"{port.port} is down")
    return lines


def offloads_off(ifnames: Iterable[str]) -> None:
    """Switch every segmentation, checksum and receive offload off on the current namespace's interfaces; read back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        for ifname in ifnames:
            blocks, mask = _offload_mask(control, ifname)
            if on := _active_and_changeable(control, ifname, blocks, mask):
                _set_features(control, ifname, blocks, on)
                if _active_and_changeable(control, ifname, blocks, mask):
                    raise FabricError(f"{ifname}: the kernel kept offloads on that were switched off")


@functools.cache
def _pair_template(mtu_bytes: int) -> Template:
    message, peer = ifinfmsg(), _end(mtu_bytes, first_slot=3)
    message.setvalue(_end(mtu_bytes, first_slot=0))
    peer["attrs"].append(("IFLA_NET_NS_FD", mark_number(6)))
    pair = [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})]
    message["attrs"].append(("IFLA_LINKINFO", {"attrs": pair}))
    slots = {"ifindex": mark_number(0), "name": mark_name(1), "mac": mark_mac(2), "peer_ifindex": mark_number(3),
             "peer_name": mark_name(4), "peer_mac": mark_mac(5), "peer_netns": mark_number(6)}
    return Template(message, RTM_NEWLINK, CREATE, slots)


def _end(mtu_bytes: int, first_slot: int) -> dict:
    """ifinfmsg fields of one end of a pair, with marks in three slots."""
    return {
        "index": mark_number(first_slot),
        "attrs": [
            ("IFLA_IFNAME", mark_name(first_slot + 1)),
            ("IFLA_ADDRESS", mark_mac(first_slot + 2)),
            ("IFLA_MTU", mtu_bytes),
            ("IFLA_TXQLEN", QUEUE_PACKETS),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
        ],
    }


@functools.cache
def _up_template(flags: int = IFF_UP) -> Template:
    message = ifinfmsg()
    message["index"], message["flags"], message["change"] = mark_number(0), flags, IFF_UP
    return Template(message, RTM_NEWLINK, CHANGE, {"ifindex": mark_number(0)})


def _state(raw: bytes) -> LinkState:
    found = attributes(raw, HEADER_BYTES + IFINFMSG_BYTES)
    packets, _, received_bytes = struct.unpack_from("=QQQ", found[IFLA_STATS64])
    return LinkState(
        ifname=text(found[IFLA_IFNAME]), mac=found[IFLA_ADDRESS].hex(":"), mtu_bytes=u32(found[IFLA_MTU]),
        tx_queues=u32(found[IFLA_NUM_TX_QUEUES]), flags=u32(raw, FLAGS_OFFSET), operstate=found[IFLA_OPERSTATE][0],
        received_packets=packets, received_bytes=received_bytes,
    )


@functools.cache
def _feature_names(feature_count: int, strings: bytes) -> tuple[str, ...]:
    names = (strings[i * ETH_GSTRING_LEN : (i + 1) * ETH_GSTRING_LEN] for i in range(feature_count))
    return tuple(name.split(b"\0")[0].decode() for name in names)


_masks: list[tuple[int, int]] = []


def _offload_mask(control: socket.socket, ifname: str) -> tuple[int, int]:
    """(32-bit blocks, bits of the offloads): the kernel's own numbering, asked for once."""
    if not _masks:
        answer = _ethtool(control, ifname, struct.pack("IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0))
        count = struct.unpack_from("I", answer, 16)[0]
        request = struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count) + bytes(count * ETH_GSTRING_LEN)
        names = _feature_names(count, _ethtool(control, ifname, request)[12:])
        mask = sum(1 << bit for bit, name in enumerate(names) if name.startswith(OFFLOADS))
        _masks.append((-(-count // 32), mask))
    return _masks[0]


def _active_and_changeable(control: socket.socket, ifname: str, blocks: int, mask: int) -> int:
    answer = _ethtool(control, ifname, struct.pack("II", ETHTOOL_GFEATURES, blocks) + bytes(16 * blocks))
    bits = 0
    for block in range(blocks):  # struct ethtool_get_features_block: available, requested, active, never_changed
        available, _, active, never = struct.unpack_from("IIII", answer, 8 + 16 * block)
        bits |= (available & active & ~never & 0xFFFFFFFF) << 32 * block
    return bits & mask


def _set_features(control: socket.socket, ifname: str, blocks: int, off: int) -> None:
    request = struct.pack("II", ETHTOOL_SFEATURES, blocks)
    for block in range(blocks):  # struct ethtool_set_features_block: valid, requested
        request += struct.pack("II", off >> 32 * block & 0xFFFFFFFF, 0)
    _ethtool(control, ifname, request)


def _ethtool(control: socket.socket, ifname: str, request: bytes) -> bytes:
    data = array.array("B", request)
    ifreq = struct.pack("16sP16x", ifname.encode(), data.buffer_info()[0])
    try:
        fcntl.ioctl(control, SIOCETHTOOL, ifreq)
    except OSError as error:
        raise FabricError(f"{ifname}: ethtool request {request[0]:#x}: {error.strerror}") from None
    return data.tobytes()
