"""What every packet of a queue pair begins with: two bytes of padding, Ethernet, IPv4, UDP, BTH (nic_frame.h's struct)."""

from __future__ import annotations

import socket
import struct

from emu.roce.flow import DSCP_ROCE_DATA, ECT_0, udp_source_port
from emu.roce.wire import ROCE_UDP_PORT
from emu.topology.plan import PortPlan

TTL, UDP, DONT_FRAGMENT, PKEY = 64, 17, 0x4000, 0xFFFF
IPV4 = slice(16, 36)


def head_words(own: PortPlan, peer: PortPlan, own_qpn: int, peer_qpn: int) -> list[int]:
    """Seven 64-bit words in the machine's byte order; lengths, checksum, opcode and PSN are 0."""
    ethernet = bytes.fromhex((own.peer_mac + own.mac).replace(":", "")) + b"\x08\0"
    addresses = socket.inet_aton(own.address) + socket.inet_aton(peer.address)
    ip = struct.pack("!BBHHHBBH", 0x45, DSCP_ROCE_DATA << 2 | ECT_0, 0, 0, DONT_FRAGMENT, TTL, UDP, 0) + addresses
    udp = struct.pack("!HHHH", udp_source_port(own_qpn, peer_qpn), ROCE_UDP_PORT, 0, 0)
    bth = struct.pack("!BBHII", 0, 0, PKEY, peer_qpn, 0)
    return list(struct.unpack("=7Q", bytes(2) + ethernet + ip + udp + bth))


def head_sum(words: list[int]) -> int:
    """Ones' complement sum of the IPv4 header, 16-bit words as they lie in memory."""
    return sum(struct.unpack("=10H", struct.pack("=7Q", *words)[IPV4]))
