"""A collective as data: pieces of a buffer, and transfers of pieces between ranks, each after others have arrived.

Transfers are listed in an order in which they can run, and those of one connection (source, target, channel) in the order in
which they go out. A rank may send as soon as everything in `after` has arrived at it; nothing else is synchronised.
A transfer says which pieces it carries and whether the target adds them to its own (reduce) or replaces its own (copy), so
that emu/collectives/conservation.py can prove a schedule right. Tuples, because the 640-GPU ring has 817,920 of them.

Switches that take part (NVLink SHARP, in-network reduction) are ranks after the last GPU. A switch has a port for each
peer, so its load is per peer, never the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from emu.collectives.formulas import bus_factor
from emu.collectives.placement import Placement, Rails


class Piece(NamedTuple):
    """Bytes that travel together. `source` holds them at the start (None: every rank its own contribution, to be summed),
    `target` needs them at the end (None: every rank)."""

    size_bytes: int
    source: int | None = None
    target: int | None = None


class Transfer(NamedTuple):
    """`pieces` from rank to rank after the transfers with these indexes. `rails`: NICs at both ends; None: scale-up.

    `user_buffer`: its GPU's end is the buffer that the collective was called with; a sum in the making is kept elsewhere.
    """

    source: int
    target: int
    size_bytes: int
    after: tuple[int, ...]
    channel: int
    pieces: range
    reduce: bool
    rails: Rails | None
    user_buffer: bool = False

    @property
    def link(self) -> str:
        return "scale_up" if self.rails is None else "scale_out"


class Switch(NamedTuple):
    """A switch that computes. `server`: whose scale-up domain it belongs to; None: it is in the scale-out network."""

    name: str
    server: int | None = None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`size_bytes` as nccl-tests counts it (formulas.py). `scale_up_elided`: only scale-out transfers are listed."""

    name: str
    collective: str
    placement: Placement
    size_bytes: int
    pieces: Sequence[Piece]
    transfers: Sequence[Transfer]
    switches: Sequence[Switch] = ()
    scale_up_elided: bool = False

    @property
    def ranks(self) -> int:
        """GPUs; switches are not counted."""
        return self.placement.ranks

    @property
    def bus_factor(self) -> float:
        return bus_factor(self.collective, self.ranks)

    @cached_property
    def steps(self) -> int:
        """Transfers in the longest chain in which each waits for the one before."""
        depth: list[int] = []
        for transfer in self.transfers:
            depth.append(1 + max((depth[before] for before in transfer.after), default=0))
        return max(depth, default=0)

    @cached_property
    def offsets(self) -> list[int]:
        """Where each piece begins in a buffer that holds all pieces one after the other."""
        return [0, *accumulate(piece.size_bytes for piece in self.pieces)][:-1]

    def site(self, rank: int) -> int | str:
        """The server a rank is in, or the name of a switch outside servers."""
        if rank < self.ranks:
            return self.placement.server(rank)
        switch = self.switches[rank - self.ranks]
        return switch.name if switch.server is None else switch.server


NOTHING = ~0  # stands for no arrival at all


class Builder:
    """Collects pieces and transfers while a generator runs.

    only_scale_out=True keeps what traffic.scale_out_only would leave: `send` over the scale-up domain adds nothing and returns
    what its arrival now means, the index of a transfer or, negative, a stand-in for several.
    """

    def __init__(self, only_scale_out: bool = False) -> None:
        self.only_scale_out = only_scale_out
        self.stand_ins: list[tuple[int, ...]] = [()]
        self.pieces: list[Piece] = []
        self.ranges: list[range] = []
        self.transfers: list[Transfer] = []

    def piece(self, size_bytes: int, source: int | None = None, target: int | None = None) -> int:
        number = len(self.pieces)
        self.pieces.append(Piece(size_bytes, source, target))
        self.ranges.append(range(number, number + 1))
        return number

    def send(
        self, source: int, target: int, piece: int, rails: Rails | None, after: Sequence[int] = (), *,
        channel: int = 0, reduce: bool = False, user_buffer: bool = False,
    ) -> int:
        """Index of the new transfer."""
        waits = self._resolved(after)
        if rails is None and self.only_scale_out:
            return self._stand_in(waits)
        size_bytes = self.pieces[piece].size_bytes
        pieces = self.ranges[piece]
        return self.add(Transfer(source, target, size_bytes, waits, channel, pieces, reduce, rails, user_buffer))

    def _resolved(self, after: Sequence[int]) -> tuple[int, ...]:
        if min(after, default=0) >= 0:
            return tuple(after)
        return tuple(sorted({real for at in after for real in (self.stand_ins[~at] if at < 0 else (at,))}))

    def _stand_in(self, waits: tuple[int, ...]) -> int:
        if len(waits) == 1:
            return waits[0]
        if not waits:
            return NOTHING
        self.stand_ins.append(waits)
        return ~(len(self.stand_ins) - 1)

    def add(self, transfer: Transfer) -> int:
        self.transfers.append(transfer)
        return len(self.transfers) - 1
