"""BTH opcodes, the extension headers each one carries, and AETH syndromes. No Scapy: the receiver needs them too.

Sources: Linux include/rdma/ib_pack.h (values, 0x16 and 0x17 included), drivers/infiniband/sw/rxe/rxe_opcode.c (header
order); IBTA Architecture Specification vol 1, sections 9.2 (BTH), 9.3 (extension headers), 9.7.5.2 (syndromes), by
memory. CNP: scapy.contrib.roce and a ConnectX-4 Lx capture.
"""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """All reliable-connection opcodes, the two datagram sends, and the congestion notification packet."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05
    RC_RDMA_WRITE_FIRST = 0x06
    RC_RDMA_WRITE_MIDDLE = 0x07
    RC_RDMA_WRITE_LAST = 0x08
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RC_RDMA_WRITE_ONLY = 0x0A
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RC_RDMA_READ_REQUEST = 0x0C
    RC_RDMA_READ_RESPONSE_FIRST = 0x0D
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RC_RDMA_READ_RESPONSE_LAST = 0x0F
    RC_RDMA_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_WITH_INVALIDATE = 0x16
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17
    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65
    CNP = 0x81


EXTENSION_HEADERS: dict[Opcode, tuple[str, ...]] = {
    Opcode.RC_SEND_LAST_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_SEND_ONLY_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_RDMA_WRITE_FIRST: ("RETH",),
    Opcode.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE: ("ImmDt",),
    Opcode.RC_RDMA_WRITE_ONLY: ("RETH",),
    Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE: ("RETH", "ImmDt"),
    Opcode.RC_RDMA_READ_REQUEST: ("RETH",),
    Opcode.RC_RDMA_READ_RESPONSE_FIRST: ("AETH",),
    Opcode.RC_RDMA_READ_RESPONSE_LAST: ("AETH",),
    Opcode.RC_RDMA_READ_RESPONSE_ONLY: ("AETH",),
    Opcode.RC_ACKNOWLEDGE: ("AETH",),
    Opcode.RC_ATOMIC_ACKNOWLEDGE: ("AETH", "AtomicAckETH"),
    Opcode.RC_COMPARE_SWAP: ("AtomicETH",),
    Opcode.RC_FETCH_ADD: ("AtomicETH",),
    Opcode.RC_SEND_LAST_WITH_INVALIDATE: ("IETH",),
    Opcode.RC_SEND_ONLY_WITH_INVALIDATE: ("IETH",),
    Opcode.UD_SEND_ONLY: ("DETH",),
    Opcode.UD_SEND_ONLY_WITH_IMMEDIATE: ("DETH", "ImmDt"),
}
"""Names of the headers between BTH and payload, in wire order; an opcode that is not listed has none."""

CREDITS_UNLIMITED = 0x1F
"""Credit field of an ACK syndrome that says "end-to-end flow control is off"."""

NAK_SYNDROME = 0x60
"""Upper three bits 011 of the AETH syndrome; the low five bits are a NakCode."""


class NakCode(IntEnum):
    """Why the responder refuses (low five bits of a NAK syndrome)."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4
