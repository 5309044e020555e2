"""Receiving side of the crafted NIC: every WRITE packet is placed by its own address, in whatever order it arrives.

There is no reassembly buffer and no waiting: that is the point of an address in each packet. Reads bytes, not Scapy.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from emu.errors import UsageError
from emu.roce.icrc import verify
from emu.roce.opcodes import Opcode
from emu.roce.wire import RETH, RocePacket, parse


class Outcome(StrEnum):
    """What became of one frame."""

    PLACED = "placed"
    DUPLICATE = "duplicate"  # every byte was there already; memory is not written again
    CORRUPTED = "corrupted"  # not RoCEv2, cut short, or wrong iCRC
    NOT_A_WRITE = "not a write"  # an opcode that does not carry its own address
    OUT_OF_BOUNDS = "out of bounds"  # an address outside the buffer


class Placement:
    """A registered buffer of zeros at base_va, and a count per outcome."""

    def __init__(self, buffer_bytes: int, *, base_va: int = 0) -> None:
        if buffer_bytes < 0:
            raise UsageError(f"buffer of {buffer_bytes} bytes: a size is 0 or more")
        self.buffer = bytearray(buffer_bytes)
        self.outcomes: Counter[Outcome] = Counter()
        self._base_va = base_va
        self._filled = bytearray(buffer_bytes)  # 1 where a byte has arrived

    def accept(self, frame: bytes) -> Outcome:
        """Places one Ethernet frame's payload; never raises for what the network may deliver."""
        outcome = self._place(parse(frame)) if verify(frame) else Outcome.CORRUPTED
        self.outcomes[outcome] += 1
        return outcome

    def _place(self, packet: RocePacket) -> Outcome:
        if packet.opcode != Opcode.RC_RDMA_WRITE_ONLY or len(packet.body) < RETH.size + packet.pad_bytes:
            return Outcome.NOT_A_WRITE
        va, _, _ = RETH.unpack_from(packet.body)
        payload = packet.body[RETH.size : len(packet.body) - packet.pad_bytes]
        start = va - self._base_va
        end = start + len(payload)
        if start < 0 or end > len(self.buffer):
            return Outcome.OUT_OF_BOUNDS
        if payload and self._filled.find(0, start, end) < 0:
            return Outcome.DUPLICATE
        self.buffer[start:end] = payload
        self._filled[start:end] = b"\1" * len(payload)
        return Outcome.PLACED

    @property
    def complete(self) -> bool:
        """True once every byte of the buffer has arrived."""
        return 0 not in self._filled

    def missing(self) -> list[tuple[int, int]]:
        """Ranges (address, length in bytes) that no packet has filled yet, in address order."""
        ranges = []
        start = self._filled.find(0)
        while start >= 0:
            end = self._filled.find(1, start)
            end = len(self._filled) if end < 0 else end
            ranges.append((self._base_va + start, end - start))
            start = self._filled.find(0, end)
        return ranges
