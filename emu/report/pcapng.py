"""Capture files with nanosecond times and the direction of each packet: pcapng, one interface.

Source: IETF draft-ietf-opsawg-pcapng (section header, interface description and enhanced packet blocks).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SECTION_HEADER, INTERFACE_DESCRIPTION, ENHANCED_PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER_MAGIC, LINKTYPE_ETHERNET = 0x1A2B3C4D, 1
OPT_END, OPT_COMMENT, IF_NAME, IF_TSRESOL, EPB_FLAGS = 0, 1, 2, 9, 2
NANOSECONDS = bytes([9])  # 10^-9 s
INBOUND, OUTBOUND = 1, 2


@dataclass(frozen=True)
class Captured:
    """One packet: when (ns), whether the port sent it, its bytes, and its length on a link that carries payloads."""

    at_ns: int
    sent: bool
    raw: bytes
    original_bytes: int


def write(path: Path, interface: str, packets: Iterable[Captured], comment: str) -> int:
    """Write the file; returns how many packets it has."""
    count = 0
    with open(path, "wb") as file:
        header = struct.pack("=IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + _options([(OPT_COMMENT, comment.encode())])
        file.write(_block(SECTION_HEADER, header))
        options = [(IF_NAME, interface.encode()), (IF_TSRESOL, NANOSECONDS)]
        file.write(_block(INTERFACE_DESCRIPTION, struct.pack("=HHI", LINKTYPE_ETHERNET, 0, 0) + _options(options)))
        for packet in packets:
            file.write(_block(ENHANCED_PACKET, _packet(packet)))
            count += 1
    return count


def _packet(packet: Captured) -> bytes:
    high, low = packet.at_ns >> 32, packet.at_ns & 0xFFFFFFFF
    head = struct.pack("=IIIII", 0, high, low, len(packet.raw), packet.original_bytes)
    flags = struct.pack("=I", OUTBOUND if packet.sent else INBOUND)
    return head + _padded(packet.raw) + _options([(EPB_FLAGS, flags)])


def _options(options: Iterable[tuple[int, bytes]]) -> bytes:
    filled = b"".join(struct.pack("=HH", code, len(value)) + _padded(value) for code, value in options)
    return filled + struct.pack("=HH", OPT_END, 0)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
