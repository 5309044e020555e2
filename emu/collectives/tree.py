"""Trees: sum on the way up, hand out on the way down, chunk after chunk so that both directions are busy at once.

`tree` is the reference article's (figure 4): one binary tree over all GPUs, whose inner nodes receive from two children at
once, which is its many-to-one load. NCCL's own is in double_tree.py.
Source: the reference article's section on many-to-one; NCCL src/device/all_reduce.h (runTreeSplit), src/enqueue.cc (chunk).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.collectives.cut import cut, need_at_least_one, portions
from emu.collectives.placement import Placement, Rails
from emu.collectives.schedule import Builder, Schedule

STEP_BYTES = 512 * 1024  # one of 8 steps of NCCL's 4 MiB buffer: the largest message of a tree
HALVINGS = ((8, 131072), (4, 65536), (1, 32768))  # (chunks wanted per hop of depth, no smaller than), src/enqueue.cc


@dataclass(frozen=True)
class Edge:
    """From a rank up to its parent, over `rails` (None: scale-up)."""

    parent: int
    rails: Rails | None


class Tree:
    """`edges`: each rank but the root with its edge up. `climb` lists the ranks so that children come before parents."""

    def __init__(self, edges: Mapping[int, Edge]) -> None:
        self.edges = dict(edges)
        self.depth: dict[int, int] = {}
        for rank in edges:
            self._measure(rank)
        self.climb = sorted(edges, key=lambda rank: -self.depth[rank])

    def _measure(self, rank: int) -> int:
        if rank not in self.edges:
            return 0
        if rank not in self.depth:
            self.depth[rank] = 1 + self._measure(self.edges[rank].parent)
        return self.depth[rank]

    def all_reduce(
        self, build: Builder, piece: int, channel: int, ready: Mapping[int, Sequence[int]] | None = None
    ) -> dict[int, list[int]]:
        """Up and down for one piece. `ready`: what a rank's own contribution waits for. Returns what its result waits for."""
        ready = ready or {}
        arrived = {rank: list(ready.get(rank, ())) for rank in {*self.edges, *(e.parent for e in self.edges.values())}}
        for rank in self.climb:
            edge = self.edges[rank]
            up = build.send(rank, edge.parent, piece, edge.rails, arrived[rank], channel=channel, reduce=True)
            arrived[edge.parent].append(up)
        for rank in reversed(self.climb):
            edge = self.edges[rank]
            rails = edge.rails and (edge.rails[1], edge.rails[0])
            arrived[rank] = [build.send(edge.parent, rank, piece, rails, arrived[edge.parent], channel=channel)]
        return arrived


def tree_chunk_bytes(size_bytes: int, channels: int, depth: int) -> int:
    """NCCL's chunk: 512 KiB, halved while a channel would have too few chunks to keep a tree of `depth` hops busy."""
    chunk = STEP_BYTES
    for per_hop, smallest in HALVINGS:
        while size_bytes // (channels * chunk) < depth * per_hop and chunk > smallest:
            chunk //= 2
    return chunk


def tree_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int | None = None,
    only_scale_out: bool = False,
) -> Schedule:
    """One binary tree over n ranks, rank r below rank (r - 1) div 2, the same for each channel: 2·floor(log2 n) steps a chunk.

    2(n - 1)·size bytes; a rank with two children receives 3·size, a leaf size. chunk_bytes=None takes NCCL's rule.
    only_scale_out=True lists what `scale_out_only` leaves of it, without making the rest first.
    """
    need_at_least_one(size_bytes=size_bytes, channels=channels)
    chunk = chunk_bytes or tree_chunk_bytes(size_bytes, channels, placement.ranks.bit_length() - 1)
    need_at_least_one(chunk_bytes=chunk)
    parents = {rank: (rank - 1) // 2 for rank in range(1, placement.ranks)}
    tree = Tree({rank: Edge(parent, placement.rails(rank, parent)) for rank, parent in parents.items()})
    return over_trees("tree", placement, size_bytes, [tree] * channels, chunk, only_scale_out)


def over_trees(
    name: str, placement: Placement, size_bytes: int, trees: Sequence[Tree], chunk_bytes: int, only_scale_out: bool = False
) -> Schedule:
    """AllReduce with one channel per tree. The channels' chunks take turns, as their blocks run side by side."""
    build = Builder(only_scale_out)
    shares = [portions(share, chunk_bytes) for share in cut(size_bytes, len(trees))]
    for turn in range(len(shares[0])):
        for channel, (tree, chunks) in enumerate(zip(trees, shares, strict=True)):
            if turn < len(chunks):
                tree.all_reduce(build, build.piece(chunks[turn]), channel)
    return Schedule(
        name=name, collective="all_reduce", placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers, scale_up_elided=only_scale_out,
    )
