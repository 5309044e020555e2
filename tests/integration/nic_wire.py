"""Recording what a NIC receives and sends, and reading it as the model of the transport does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.roce.reliable import Answer, Kind
from emu.topology.model import Port

ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE = 0x0003, 4, 33
RECORD_BYTES = 256 << 20
BTH, AETH, SACK_BITS, RETH = 42, 54, 62, 54
WRITE_IMM, ACK, CNP = 0x0B, 0x11, 0x81
NAK = 0x60
HEADERS_BYTES = 78  # of data, iCRC included
LENGTHS = (16, 38)  # of IP and UDP


def whole(raw: bytes, elided_bytes: int) -> bytes:
    """The frame as it was meant: with the lengths and the zeros of the payload if it travelled without."""
    if not elided_bytes or raw[BTH] != WRITE_IMM or len(raw) != HEADERS_BYTES:
        return raw
    frame = bytearray(raw[:-4] + bytes(elided_bytes) + raw[-4:])
    for at in LENGTHS:
        frame[at : at + 2] = (int.from_bytes(frame[at : at + 2], "big") + elided_bytes).to_bytes(2, "big")
    return bytes(frame)


@dataclass(frozen=True)
class Frame:
    """One RoCE frame: whether the NIC sent it, the QP it is for, its opcode and PSN (24 bits)."""

    sent: bool
    raw: bytes

    @property
    def opcode(self) -> int:
        return self.raw[BTH]

    @property
    def qpn(self) -> int:
        return int.from_bytes(self.raw[BTH + 5 : BTH + 8], "big")

    @property
    def psn(self) -> int:
        return int.from_bytes(self.raw[BTH + 9 : BTH + 12], "big")

    @property
    def asks(self) -> bool:
        return bool(self.raw[BTH + 8] & 0x80)

    def answer(self) -> Answer:
        """An ACK, SACK or NAK; PSN -1 as such."""
        psn = self.psn if self.psn < 1 << 23 else self.psn - (1 << 24)
        if self.raw[AETH] == NAK:
            return Answer(Kind.NAK, psn)
        if len(self.raw) < 82:
            return Answer(Kind.ACK, psn)
        base, (low, high) = int.from_bytes(self.raw[AETH + 5 : AETH + 8], "big"), struct.unpack_from("!QQ", self.raw, SACK_BITS)
        bits = low | high << 64
        return Answer(Kind.SACK, psn, base, frozenset(base + bit for bit in range(128) if bits >> bit & 1))


class Recorder:
    """Every RoCE frame at one NIC from now on, both ways."""

    def __init__(self, fabric: Fabric, nic: Port) -> None:
        with inside(fabric.netlink(nic.node).netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECORD_BYTES)
        self._socket.bind((nic.ifname, ETH_P_ALL))
        self._socket.setblocking(False)

    def frames(self) -> Iterator[Frame]:
        """What has been recorded so far, in the order in which it passed."""
        while True:
            try:
                raw, address = self._socket.recvfrom(65536)
            except BlockingIOError:
                return
            if raw[12:14] == b"\x08\0" and raw[23] == 17 and raw[36:38] == struct.pack("!H", 4791):
                yield Frame(address[2] == PACKET_OUTGOING, raw)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
