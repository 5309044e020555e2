"""A received frame, read from its bytes alone: Ethernet, VLAN tags, IPv4 or IPv6, UDP, BTH.

Does not use Scapy, so what the receiver sees is independent of the code that built the frame.
Layout: Linux drivers/infiniband/sw/rxe/rxe_hdr.h; RoCEv2 UDP port 4791 (IBTA Annex A17, by memory).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

ROCE_UDP_PORT = 4791
ETHERNET_BYTES, VLAN_TAG_BYTES, UDP_BYTES, ICRC_BYTES = 14, 4, 8, 4
ETHERTYPE_IPV4, ETHERTYPE_IPV6 = 0x0800, 0x86DD
VLAN_ETHERTYPES = (0x8100, 0x88A8)
IPV4_MIN_BYTES, IPV6_BYTES = 20, 40
PROTOCOL_UDP = 17

UDP = struct.Struct("!HHHH")  # source port, destination port, length, checksum
BTH = struct.Struct("!BBHII")  # opcode, SE|M|pad|version, P_Key, FECN|BECN|reserved|DestQP, AckReq|reserved|PSN
RETH = struct.Struct("!QII")  # virtual address, R_Key, DMA length
LOW_24_BITS = 0xFFFFFF


def ip_packet(frame: bytes) -> bytes | None:
    """The IP packet of an Ethernet frame, without VLAN tags and Ethernet padding; None if it is not whole or not IP."""
    offset = ETHERNET_BYTES
    ethertype = frame[offset - 2 : offset]
    while int.from_bytes(ethertype, "big") in VLAN_ETHERTYPES:
        offset += VLAN_TAG_BYTES
        ethertype = frame[offset - 2 : offset]
    if int.from_bytes(ethertype, "big") not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        return None
    length = ip_length(frame[offset:])
    return frame[offset : offset + length] if length and offset + length <= len(frame) else None


def ip_length(packet: bytes) -> int | None:
    """Length in bytes that the IP header states; None if the header is cut off or of another version."""
    if len(packet) >= IPV4_MIN_BYTES and packet[0] >> 4 == 4:
        return int.from_bytes(packet[2:4], "big")
    if len(packet) >= IPV6_BYTES and packet[0] >> 4 == 6:
        return IPV6_BYTES + int.from_bytes(packet[4:6], "big")
    return None


def udp_offset(packet: bytes) -> int | None:
    """Where UDP begins in an IP packet; None if something else follows. IPv6 extension headers are not followed."""
    length = ip_length(packet)
    if length is None:
        return None
    offset, protocol = (4 * (packet[0] & 0x0F), packet[9]) if packet[0] >> 4 == 4 else (IPV6_BYTES, packet[6])
    whole = IPV4_MIN_BYTES <= offset and offset + UDP_BYTES + BTH.size + ICRC_BYTES <= length
    return offset if protocol == PROTOCOL_UDP and whole else None


@dataclass(frozen=True, slots=True)
class RocePacket:
    """BTH fields of one packet; `body` is all bytes between BTH and iCRC: extension headers, payload, pad."""

    opcode: int
    pad_bytes: int
    dst_qpn: int
    psn: int
    body: bytes


def roce_ip_packet(frame: bytes) -> bytes | None:
    """The IP packet of a whole RoCEv2 frame, or None."""
    packet = ip_packet(frame)
    udp = udp_offset(packet) if packet else None
    if udp is None:
        return None
    _, dport, udp_length, _ = UDP.unpack_from(packet, udp)
    return packet if dport == ROCE_UDP_PORT and udp_length == len(packet) - udp else None


def parse(frame: bytes) -> RocePacket | None:
    """BTH of a RoCEv2 frame, or None if the frame is something else. The iCRC is not checked here."""
    packet = roce_ip_packet(frame)
    if packet is None:
        return None
    bth = udp_offset(packet) + UDP_BYTES
    opcode, flags, _, dst_qpn, psn = BTH.unpack_from(packet, bth)
    return RocePacket(
        opcode=opcode,
        pad_bytes=flags >> 4 & 0x3,
        dst_qpn=dst_qpn & LOW_24_BITS,
        psn=psn & LOW_24_BITS,
        body=packet[bth + BTH.size : -ICRC_BYTES],
    )
