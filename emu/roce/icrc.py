"""Invariant CRC of RoCEv2, from raw bytes: what no switch on the way may change.

CRC-32 of IEEE 802.3 over eight 0xFF bytes (the masked InfiniBand local header), then the IP packet without its last
four bytes, with every field that a router changes set to ones: ToS, TTL and header checksum (IPv6: traffic class, flow
label, hop limit), UDP checksum, and the BTH byte of FECN and BECN. So a switch may mark CE and count TTL down; it may
not touch addresses, ports or the IP identification. Appended low byte first.

Source: Linux drivers/infiniband/sw/rxe/rxe_icrc.c; checked against two captures in tests/unit/test_roce_icrc.py.
"""

from __future__ import annotations

from zlib import crc32

from emu.errors import UsageError
from emu.roce.wire import BTH, ICRC_BYTES, UDP_BYTES, ip_length, roce_ip_packet, udp_offset

LOCAL_HEADER_CRC = crc32(b"\xff" * 8)
BTH_CONGESTION_BYTE = 4


def icrc(packet: bytes) -> bytes:
    """iCRC (4 bytes, wire order) of an IP packet that carries RoCEv2.

    The IP length must count the iCRC; whether its four bytes are present, and what they hold, does not matter.
    """
    udp = udp_offset(packet)
    covered = (ip_length(packet) or 0) - ICRC_BYTES
    if udp is None or len(packet) < covered:
        raise UsageError(f"no iCRC for these {len(packet)} bytes: not a whole IPv4 or IPv6 packet with UDP and BTH")
    head_end = udp + UDP_BYTES + BTH.size
    crc = crc32(_masked(packet[:head_end], udp), LOCAL_HEADER_CRC)
    return crc32(memoryview(packet)[head_end:covered], crc).to_bytes(ICRC_BYTES, "little")


def _masked(head: bytes, udp: int) -> bytearray:
    masked = bytearray(head)
    if head[0] >> 4 == 4:
        masked[1] = masked[8] = 0xFF  # ToS, TTL
        masked[10:12] = b"\xff\xff"  # header checksum
    else:
        masked[0] |= 0x0F  # traffic class and flow label, up to byte 3
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
    masked[udp + 6 : udp + 8] = b"\xff\xff"  # UDP checksum
    masked[udp + UDP_BYTES + BTH_CONGESTION_BYTE] = 0xFF
    return masked


def verify(frame: bytes) -> bool:
    """True if an Ethernet frame (VLAN tags and trailing padding allowed) is RoCEv2 and carries the right iCRC."""
    packet = roce_ip_packet(frame)
    return packet is not None and packet[-ICRC_BYTES:] == icrc(packet)
