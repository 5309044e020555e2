"""Reliable connection in plain Python: what the eBPF NIC (emu/bpf/nic_send.h, nic_ack.h, nic_receive.h) is to do.

No time, no bytes, no network: PSNs go in, PSNs and answers come out. Tests let it lose packets by the thousand, and play
packets that a real NIC received to it, to compare its answers with the NIC's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

WINDOW_MAX, SACK_BITS, PACKETS_AT_ONCE = 1024, 64, 32


class Kind(StrEnum):
    """ACK: all up to psn arrived. SACK: also these. NAK: psn is what is missing."""

    ACK = "ack"
    SACK = "sack"
    NAK = "nak"


@dataclass(frozen=True)
class Answer:
    """`arrived`: PSNs beyond the gap, of the 128 from `base` on (SACK only)."""

    kind: Kind
    psn: int
    base: int = 0
    arrived: frozenset[int] = frozenset()


@dataclass
class Receiver:
    """`ends`: the PSN after each message, in order. `placed` lists each PSN when it first arrives."""

    ends: Sequence[int]
    selective: bool
    expected: int = 0
    early: set[int] = field(default_factory=set)
    placed: list[int] = field(default_factory=list)
    duplicates: int = 0
    refused: int = 0
    nak_sent: bool = False

    @property
    def complete(self) -> int:
        """Messages of which every packet is there."""
        return sum(end <= self.expected for end in self.ends)

    def on_data(self, psn: int, asked: bool) -> Answer | None:
        """A data packet; what goes back for it. One that closes the last gap is answered unasked."""
        gaps = bool(self.early)
        if psn < self.expected or psn in self.early:
            self.duplicates += 1
        elif not self.selective and psn != self.expected or psn - self.expected >= WINDOW_MAX:
            self.refused += 1
            if not self.selective:
                return self._nak()
        else:
            self._place(psn)
        return self._acknowledge(psn) if asked or gaps and not self.early else None

    def _place(self, psn: int) -> None:
        self.placed.append(psn)
        self.early.add(psn)
        while self.expected in self.early:
            self.early.remove(self.expected)
            self.expected += 1
            self.nak_sent = False

    def _nak(self) -> Answer | None:
        if self.nak_sent:
            return None
        self.nak_sent = True
        return Answer(Kind.NAK, self.expected)

    def _acknowledge(self, psn: int) -> Answer:
        if not self.early:
            return Answer(Kind.ACK, self.expected - 1)
        first = self.expected // SACK_BITS * SACK_BITS
        base = max(first, psn // SACK_BITS * SACK_BITS - SACK_BITS)
        return Answer(Kind.SACK, self.expected - 1, base, frozenset(self.early & set(range(base, base + 2 * SACK_BITS))))


@dataclass
class Sender:
    """Sends the packets of messages that end at `ends`; each event returns (psn, whether an ACK is asked for) in order."""

    ends: Sequence[int]
    selective: bool
    window: int = 256
    ack_every: int = 4
    reorder: int = 128
    next: int = 0
    una: int = 0
    highest: int = 0
    sacked: set[int] = field(default_factory=set)
    sacked_high: int = 0
    repair_next: int = 0
    repair_end: int = 0
    repaired_to: int = 0
    ready: bool = False
    resent: int = 0

    @property
    def done(self) -> bool:
        return self.una == self.ends[-1]

    def on_tick(self, timeout: bool = False) -> list[tuple[int, bool]]:
        """A look round: begin, go on, or after a `timeout` repair what is not acknowledged."""
        if timeout and self.next != self.una:
            if self.selective:
                self.repair_next, self.repair_end = self.una, self.next
            else:
                self.next = self.una
        return self._transmit()

    def on_answer(self, answer: Answer) -> list[tuple[int, bool]]:
        acknowledged = answer.psn if answer.kind is Kind.NAK else answer.psn + 1
        if self.una < acknowledged <= self.highest:
            self.sacked -= set(range(self.una, acknowledged))
            self.una = acknowledged
            self.next = max(self.next, self.una)
        if answer.kind is Kind.NAK and answer.psn == self.una and self.next > self.una:
            self.next = self.una
        if answer.kind is Kind.SACK:
            self._on_sack(answer)
        return self._transmit()

    def _on_sack(self, answer: Answer) -> None:
        news = {psn for psn in answer.arrived if psn >= self.una}
        self.sacked |= news
        self.sacked_high = max([self.sacked_high, *(psn + 1 for psn in news)])
        start, end = max(self.repaired_to, self.una), self.sacked_high - self.reorder
        if self.repair_end <= self.repair_next and end > start:
            self.repair_next, self.repair_end, self.repaired_to = start, end, end

    def _transmit(self) -> list[tuple[int, bool]]:
        sent, turns = [], 0
        for packet in self._turns():
            if packet is not None:
                sent.append(packet)
            if (turns := turns + 1) == PACKETS_AT_ONCE:
                break
        return sent

    def _turns(self) -> Iterator[tuple[int, bool] | None]:
        """One packet, or None for a PSN of a repair that has arrived meanwhile, per turn."""
        while True:
            if self.repair_end > self.repair_next:
                psn, self.repair_next = self.repair_next, self.repair_next + 1
                again = psn >= self.una and psn not in self.sacked
                self.resent += again
                yield (psn, True) if again else None
            elif self.next - self.una < self.window and self.next < self.ends[-1]:
                psn, self.next = self.next, self.next + 1
                self.resent += psn < self.highest
                self.highest = max(self.highest, self.next)
                asked = self.next in self.ends or self.next % self.ack_every == 0 or self.next - self.una >= self.window
                yield psn, asked
            else:
                return
