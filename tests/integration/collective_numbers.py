"""What the user of a collective gives and gets, as numpy has it, and how a schedule's pieces lie in these buffers.

A rank gives the pieces that it has at the start in the order of who needs them, and gets those that it needs in the order of
whose they are: blocks by rank, as MPI and NCCL lay them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from emu.collectives.play import State
from emu.collectives.schedule import Schedule

SEED = 6
EXACT = 1 << 40  # sums of so small numbers are exact in int64 and in float64, in any order
Buffers = Sequence[np.ndarray]

EXPECTED: dict[str, Callable[[Buffers, int], np.ndarray]] = {
    "all_reduce": lambda given, rank: np.sum(given, axis=0, dtype=given[0].dtype),
    "reduce_scatter": lambda given, rank: np.array_split(np.sum(given, axis=0, dtype=given[0].dtype), len(given))[rank],
    "all_gather": lambda given, rank: np.concatenate(given),
    "broadcast": lambda given, rank: given[0],
    "send_recv": lambda given, rank: given[rank - 1],
    "all_to_all": lambda given, rank: np.concatenate([np.array_split(buffer, len(given))[rank] for buffer in given]),
}


class Numbers:
    """A buffer of random numbers for each rank of a schedule, no two alike."""

    def __init__(self, schedule: Schedule, dtype: type) -> None:
        self.schedule, self.dtype = schedule, np.dtype(dtype)
        random = np.random.default_rng(SEED)
        self.given = [self._random(random, rank) for rank in range(schedule.ranks)]
        self._at = [self._starts(rank) for rank in range(schedule.ranks)]

    def contribution(self, rank: int, piece: int) -> bytes:
        start = self._at[rank][piece]
        return self.given[rank].tobytes()[start:start + self.schedule.pieces[piece].size_bytes]

    def add(self, a: bytes, b: bytes) -> bytes:
        return (np.frombuffer(a, self.dtype) + np.frombuffer(b, self.dtype)).tobytes()

    def wrong_ranks(self, state: State) -> list[int]:
        """Ranks whose buffer is not, byte for byte, what numpy makes of the given ones."""
        expected = EXPECTED[self.schedule.collective]
        return [rank for rank in range(self.schedule.ranks)
                if self.got(state, rank) != expected(self.given, rank).tobytes()]

    def got(self, state: State, rank: int) -> bytes:
        needed = sorted(_of(rank, self.schedule, "target"), key=lambda piece: (self._key(piece, "source"), piece))
        return b"".join(state[rank].get(piece, b"") for piece in needed)

    def _random(self, random: np.random.Generator, rank: int) -> np.ndarray:
        size_bytes = sum(self.schedule.pieces[piece].size_bytes for piece in _of(rank, self.schedule, "source"))
        top = min(EXACT, np.iinfo(self.dtype).max) if self.dtype.kind in "iu" else EXACT
        return random.integers(1, top, size_bytes // self.dtype.itemsize).astype(self.dtype)

    def _starts(self, rank: int) -> dict[int, int]:
        """Where each piece that the rank has begins in what it gives."""
        starts, at = {}, 0
        for piece in sorted(_of(rank, self.schedule, "source"), key=lambda piece: (self._key(piece, "target"), piece)):
            starts[piece] = at
            at += self.schedule.pieces[piece].size_bytes
        return starts

    def _key(self, piece: int, end: str) -> int:
        rank = getattr(self.schedule.pieces[piece], end)
        return -1 if rank is None else rank


def _of(rank: int, schedule: Schedule, end: str) -> Iterator[int]:
    """Pieces that the rank has at the start (end="source"), or needs at the end ("target")."""
    return (number for number, piece in enumerate(schedule.pieces) if getattr(piece, end) in (None, rank))
