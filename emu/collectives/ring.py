"""Rings: AllReduce, reduce-scatter, all-gather, and the chain of a broadcast.

One ring per channel through all ranks. Inside a server it goes from GPU to GPU over the scale-up domain; channel c begins
with GPU c and crosses to the next server on rail c (the last GPU reaches that NIC over the scale-up domain), so that as
many channels as rails use every NIC and no byte leaves its rail. Without a scale-up domain every hop uses the GPUs' own NICs.

A channel's share goes round in loops of one chunk per rank; a rank begins a loop when its last receive of the loop before is
in. A chunk goes out in slices: one network message each.
Source: NCCL src/device/all_reduce.h (runRing), reduce_scatter.h, all_gather.h, broadcast.h; src/graph/connect.cc
(connectRings); chunk = 4 and slice = 2 of 8 steps of a 4 MiB buffer. NCCL's 2n - 1 counts calls, of which the first only sends
and the last only receives: 2(n - 1) transfers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from emu.collectives.cut import cut, need_at_least_one, portions
from emu.collectives.placement import Placement, Rails
from emu.collectives.schedule import Builder, Schedule, Transfer
from emu.units import mib

CHUNK_BYTES, SLICE_BYTES = mib(2), mib(1)
Hop = tuple[int, int, int, Rails | None]  # position on the ring, source, target, NICs


@dataclass(frozen=True)
class Cuts:
    """Channels, and the most that a rank sends per step and in one message."""

    channels: int = 1
    chunk_bytes: int = CHUNK_BYTES
    slice_bytes: int = SLICE_BYTES

    def __post_init__(self) -> None:
        need_at_least_one(channels=self.channels, chunk_bytes=self.chunk_bytes, slice_bytes=self.slice_bytes)


@dataclass
class Ring:
    """One channel's ring while its transfers are listed. `last` is the latest transfer of each piece, -1 for none."""

    build: Builder
    hops: Sequence[Hop]
    channel: int
    steps: range
    reduce_steps: int
    last: list[int] = field(default_factory=list)

    def loop(self, chunks: Sequence[range]) -> None:
        """Each position passes on what came in a step earlier, beginning with the chunk just behind its own."""
        for step in self.steps:
            reduce = step < self.reduce_steps
            for position, source, target, rails in self.hops:
                for piece in chunks[(position - step - 1) % len(chunks)]:
                    if self.build.pieces[piece].size_bytes:
                        self._pass_on(piece, source, target, rails, reduce)

    def _pass_on(self, piece: int, source: int, target: int, rails: Rails | None, reduce: bool) -> None:
        before, size_bytes = self.last[piece], self.build.pieces[piece].size_bytes
        after = (before,) if before >= 0 else ()
        self.last[piece] = self.build.add(
            Transfer(source, target, size_bytes, after, self.channel, self.build.ranges[piece], reduce, rails)
        )

    def wait(self, ended: Sequence[range], begun: Sequence[range]) -> None:
        """The first send of a loop comes after the last receive of the loop before, at every position."""
        for position in range(len(begun)):
            received = ended[(position - 1 - self.steps[-1] - 1) % len(ended)]
            sent = begun[(position - self.steps[0] - 1) % len(begun)]
            for old, new in zip(received, sent, strict=False):
                if self.build.pieces[old].size_bytes:
                    self.last[new] = self.last[old]


def ring_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = CHUNK_BYTES,
    slice_bytes: int = SLICE_BYTES, only_scale_out: bool = False,
) -> Schedule:
    """n ranks: n - 1 steps add up, n - 1 hand round; 2(n - 1) steps a loop, each rank sends a chunk to the right in each.

    2(n - 1)·size bytes in all, so a rank sends 2(n - 1)/n·size, and a server's NICs together as much.
    only_scale_out=True lists what `scale_out_only` leaves of it, without making the rest first.
    """
    cuts = Cuts(channels, chunk_bytes, slice_bytes)
    need_at_least_one(size_bytes=size_bytes)
    n = placement.ranks
    loops = [
        [cut(portion, n) for portion in portions(share, n * cuts.chunk_bytes)] for share in cut(size_bytes, channels)
    ]
    return _rings(placement, "ring", "all_reduce", size_bytes, cuts, loops, range(2 * (n - 1)), only_scale_out)


def reduce_scatter(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = CHUNK_BYTES,
    slice_bytes: int = SLICE_BYTES, only_scale_out: bool = False,
) -> Schedule:
    """Block r of n summed at rank r: the ring's first n - 1 steps. (n - 1)·size bytes, size being that of all blocks."""
    cuts = Cuts(channels, chunk_bytes, slice_bytes)
    loops = _block_loops(placement, size_bytes, cuts)
    steps = range(placement.ranks - 1)
    return _rings(placement, "ring", "reduce_scatter", size_bytes, cuts, loops, steps, only_scale_out)


def all_gather(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = CHUNK_BYTES,
    slice_bytes: int = SLICE_BYTES, only_scale_out: bool = False,
) -> Schedule:
    """Block r of rank r to all: the ring's last n - 1 steps. (n - 1)·size bytes, size being that of all blocks."""
    cuts = Cuts(channels, chunk_bytes, slice_bytes)
    loops = _block_loops(placement, size_bytes, cuts)
    steps = range(placement.ranks - 1, 2 * (placement.ranks - 1))
    return _rings(placement, "ring", "all_gather", size_bytes, cuts, loops, steps, only_scale_out)


def broadcast(
    placement: Placement, size_bytes: int, *, root: int = 0, channels: int = 1, slice_bytes: int = SLICE_BYTES
) -> Schedule:
    """From `root` along the ring, slice by slice: n - 1 steps, (n - 1)·size bytes. NCCL broadcasts by ring only."""
    need_at_least_one(size_bytes=size_bytes, channels=channels, slice_bytes=slice_bytes)
    build = Builder()
    for channel, share in enumerate(cut(size_bytes, channels)):
        hops = ring_hops(placement, channel)
        first = next(position for position, source, _, _ in hops if source == root)
        chain = (hops[first:] + hops[:first])[:-1]
        for portion in portions(share, slice_bytes):
            piece, after = build.piece(portion, source=root), ()
            for _, source, target, rails in chain:
                after = (build.send(source, target, piece, rails, after, channel=channel),)
    return Schedule(
        name="ring", collective="broadcast", placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers,
    )


def ring_order(placement: Placement, channel: int) -> list[int]:
    """Ranks in the order of a channel's ring: server by server, each beginning with GPU `channel`."""
    gpus = range(channel, channel + placement.gpus_per_server)
    return [placement.rank(server, gpu) for server in range(placement.servers) for gpu in gpus]


def ring_hops(placement: Placement, channel: int) -> list[Hop]:
    order = ring_order(placement, channel)
    ends = zip(order, order[1:] + order[:1], strict=True)
    return [(place, a, b, placement.rails(a, b, through=channel)) for place, (a, b) in enumerate(ends)]


def _block_loops(placement: Placement, size_bytes: int, cuts: Cuts) -> list[list[list[int]]]:
    """Sizes by channel, loop and position; the block of the rank at a position is the chunk of that position."""
    need_at_least_one(size_bytes=size_bytes)
    shares = [cut(block, cuts.channels) for block in cut(size_bytes, placement.ranks)]
    result = []
    for channel in range(cuts.channels):
        blocks = [portions(shares[rank][channel], cuts.chunk_bytes) for rank in ring_order(placement, channel)]
        rounds = max(len(block) for block in blocks)
        result.append([[block[r] if r < len(block) else 0 for block in blocks] for r in range(rounds)])
    return result


def _rings(
    placement: Placement, name: str, collective: str, size_bytes: int, cuts: Cuts,
    loops: Iterable[Sequence[list[int]]], steps: range, only_scale_out: bool,
) -> Schedule:
    """`loops`: chunk sizes by channel, loop and position."""
    build = Builder()
    for channel, sizes in enumerate(loops):
        hops = [hop for hop in ring_hops(placement, channel) if hop[3] is not None or not only_scale_out]
        ring = Ring(build, hops, channel, steps, placement.ranks - 1)
        ended: list[range] = []
        for chunk_sizes in sizes:
            begun = _chunks(ring, collective, ring_order(placement, channel), chunk_sizes, cuts.slice_bytes)
            if ended:
                ring.wait(ended, begun)
            ring.loop(begun)
            ended = begun
    return Schedule(
        name=name, collective=collective, placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers, scale_up_elided=only_scale_out,
    )


def _chunks(ring: Ring, collective: str, order: list[int], sizes: list[int], slice_bytes: int) -> list[range]:
    """Pieces of each position's chunk: as many slices in every chunk, some of them empty where bytes run out."""
    slices, build = -(-max(sizes) // slice_bytes), ring.build
    chunks = []
    for rank, size in zip(order, sizes, strict=True):
        first = len(build.pieces)
        for part in cut(size, slices):
            build.piece(part, *_ends(collective, rank))
        chunks.append(range(first, first + slices))
    ring.last += [-1] * (len(build.pieces) - len(ring.last))
    return chunks


def _ends(collective: str, rank: int) -> tuple[int | None, int | None]:
    """Where a block that belongs to `rank` is at the start and has to be at the end (Piece)."""
    return {"all_reduce": (None, None), "reduce_scatter": (None, rank), "all_gather": (rank, None)}[collective]
