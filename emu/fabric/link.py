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
from collections.abc import Iterable

from pyroute2.netlink.rtnl import RTM_GETLINK, RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg

from emu.errors import FabricError
from emu.fabric.netlink import CHANGE, CREATE, Batch, Netlink
from emu.topology.plan import PortPlan

LO_IFINDEX = 1
SIOCETHTOOL = 0x8946
ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GFEATURES, ETHTOOL_SFEATURES = 0x37, 0x1B, 0x3A, 0x3B
ETH_SS_FEATURES = 4
ETH_GSTRING_LEN = 32
OFFLOADS = ("tx-checksum-", "tx-tcp", "tx-udp-segmentation", "tx-generic-segmentation", "tx-gso-list", "tx-sctp-segmentation",
            "rx-gro", "rx-lro", "tx-scatter-gather-fraglist")


def create_pair(batch: Batch, a: PortPlan, b: PortPlan, netns_of_b: int, mtu_bytes: int) -> None:
    """Queue up the veth a-b: sent in a's namespace, b lands in the namespace behind the file descriptor."""
    message, peer = ifinfmsg(), _end(b, mtu_bytes)
    message.setvalue(_end(a, mtu_bytes))
    peer["attrs"].append(("IFLA_NET_NS_FD", netns_of_b))
    pair = [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})]
    message["attrs"].append(("IFLA_LINKINFO", {"attrs": pair}))
    batch.add(message, RTM_NEWLINK, CREATE, f"link {a.port} - {b.port}")


def bring_up(batch: Batch, ifindex: int, what: str) -> None:
    """Not part of the creation: a veth refuses to come up before its peer exists."""
    message = ifinfmsg()
    message["index"], message["flags"], message["change"] = ifindex, IFF_UP, IFF_UP
    batch.add(message, RTM_NEWLINK, CHANGE, f"{what} up")


def read(netlink: Netlink) -> list[ifinfmsg]:
    """Every link of the namespace."""
    return netlink.dump(ifinfmsg(), RTM_GETLINK)


def mismatches(wanted: Iterable[PortPlan], got: Iterable[ifinfmsg], mtu_bytes: int) -> list[str]:
    """One line per port whose name, hardware address, MTU, queue count or state is not the plan's."""
    found = {message["index"]: message for message in got}
    lines: list[str] = []
    for port in wanted:
        message = found.get(port.ifindex)
        if message is None:
            lines.append(f"{port.port}: no interface number {port.ifindex}")
            continue
        want = {"IFLA_IFNAME": port.port.ifname, "IFLA_ADDRESS": port.mac, "IFLA_MTU": mtu_bytes, "IFLA_NUM_TX_QUEUES": 1}
        lines += [
            f"{port.port}: {knob} asked {value}, kernel keeps {message.get_attr(knob)}"
            for knob, value in want.items()
            if message.get_attr(knob) != value
        ]
        if not message["flags"] & IFF_UP:
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


def _end(port: PortPlan, mtu_bytes: int) -> dict:
    """ifinfmsg fields of one end of a pair."""
    return {
        "index": port.ifindex,
        "attrs": [
            ("IFLA_IFNAME", port.port.ifname),
            ("IFLA_ADDRESS", port.mac),
            ("IFLA_MTU", mtu_bytes),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
        ],
    }


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
