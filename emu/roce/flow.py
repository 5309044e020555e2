"""One direction of a queue pair: everything about a RoCE flow that stays the same from packet to packet.

The UDP source port is the only entropy ECMP sees. Linux derives it from the two queue pair numbers, symmetric, so both
directions use the same port (include/rdma/ib_verbs.h: `rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

from emu.errors import UsageError

DSCP_ROCE_DATA = 26  # NVIDIA's lossless setup: traffic class 106 = 26 << 2 | ECT(0)
ECT_0 = 0b10
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)


def udp_source_port(src_qpn: int, dst_qpn: int) -> int:
    """UDP source port, 49152 to 65535, that Linux gives a queue pair whose flow label is 0."""
    product = src_qpn * dst_qpn
    product ^= product >> 20
    product ^= product >> 40
    flow_label = product & 0xFFFFF
    return (flow_label & 0x3FFF) ^ (flow_label >> 14) | 0xC000


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Addresses, queue pairs and marking of one direction. `udp_sport` overrides the port Linux would choose."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_qpn: int
    dst_qpn: int
    rkey: int = 0
    dscp: int = DSCP_ROCE_DATA
    ttl: int = 64
    udp_sport: int | None = None

    def __post_init__(self) -> None:
        for name, top in (("src_qpn", 2**24), ("dst_qpn", 2**24), ("rkey", 2**32), ("dscp", 64), ("ttl", 256)):
            check_range(name, getattr(self, name), top)
        if self.udp_sport is not None:
            check_range("udp_sport", self.udp_sport, 2**16)
        for name in ("src_mac", "dst_mac"):
            _check_mac(name, getattr(self, name))
        if _ip("src_ip", self.src_ip).version != _ip("dst_ip", self.dst_ip).version:
            raise UsageError(f"flow {self.src_ip} to {self.dst_ip}: both addresses must be IPv4 or both IPv6")

    @property
    def ipv6(self) -> bool:
        """True if the addresses are IPv6."""
        return _ip("src_ip", self.src_ip).version == 6

    @property
    def tos(self) -> int:
        """IPv4 ToS or IPv6 traffic class: DSCP and ECT(0)."""
        return self.dscp << 2 | ECT_0

    @property
    def sport(self) -> int:
        """UDP source port of every packet of this flow."""
        return udp_source_port(self.src_qpn, self.dst_qpn) if self.udp_sport is None else self.udp_sport

    def reverse(self) -> Flow:
        """The way back, which ACK, NAK and CNP take."""
        return replace(
            self,
            src_mac=self.dst_mac,
            dst_mac=self.src_mac,
            src_ip=self.dst_ip,
            dst_ip=self.src_ip,
            src_qpn=self.dst_qpn,
            dst_qpn=self.src_qpn,
        )


def check_range(name: str, value: int, top: int) -> None:
    """UsageError unless 0 <= value < top."""
    if not 0 <= value < top:
        raise UsageError(f"{name} {value}: allowed 0 to {top - 1}")


def _check_mac(name: str, value: str) -> None:
    if not _MAC.fullmatch(value):
        raise UsageError(f"flow {name} {value!r}: a MAC address is six hexadecimal pairs, as in 02:00:00:00:00:01")


def _ip(name: str, value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        raise UsageError(f"flow {name} {value!r}: not an IPv4 or IPv6 address") from None
