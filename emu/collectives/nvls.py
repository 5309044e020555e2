"""NVLink SHARP: the scale-up switch adds and multicasts, so that a GPU sends its data about once instead of twice.

Each GPU is the head of one share. The head's load-reduce makes the switch fetch that share from every GPU and return the sum;
its multicast store makes the switch hand the result to every GPU. The switch is a rank of its own (Schedule.switches): a
fetch is a transfer from each GPU to it (reduce), the answer one from it to the head. `nvls_tree` joins the heads of all
servers by NCCL's double tree, head h on rail h, the channel's parity choosing the tree.
Source: NCCL src/device/all_reduce.h (NVLS, NVLS_TREE), src/graph/connect.cc (connectNvls), src/transport/nvls.cc (chunk).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from emu.collectives.cut import cut, need_at_least_one, portions
from emu.collectives.double_tree import double_tree_parents
from emu.collectives.placement import Placement, need_scale_up
from emu.collectives.schedule import Builder, Schedule, Switch
from emu.collectives.tree import Edge, Tree
from emu.errors import UsageError

CHUNK_BYTES = 128 * 1024  # NCCL_NVLS_CHUNKSIZE


def nvls_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = CHUNK_BYTES
) -> Schedule:
    """One server of n GPUs: 4 steps a chunk (in, out to the head, in again, out to all), 2(n + 1)·size bytes.

    A GPU sends and receives (1 + 1/n)·size each, against 2(n - 1)/n in a ring.
    """
    if placement.servers > 1:
        raise UsageError(f"nvls runs inside one server, not {placement.servers}; want nvls_tree")
    return _by_heads("nvls", placement, size_bytes, channels, chunk_bytes)


def nvls_tree_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 2, chunk_bytes: int = CHUNK_BYTES
) -> Schedule:
    """N servers of g GPUs: 4 + 2·ceil(log2 N) steps a chunk, 2N(g + 1)·size bytes inside servers, 2(N - 1)·size between."""
    return _by_heads("nvls_tree", placement, size_bytes, channels, chunk_bytes)


def _by_heads(name: str, placement: Placement, size_bytes: int, channels: int, chunk_bytes: int) -> Schedule:
    need_scale_up(placement, name)
    need_at_least_one(size_bytes=size_bytes, channels=channels, chunk_bytes=chunk_bytes)
    build, servers = Builder(), range(placement.servers)
    trees = [[_head_tree(placement, half, head) for head in range(placement.gpus_per_server)] for half in (0, 1)]
    for channel, head, size in head_pieces(size_bytes, channels, placement.gpus_per_server, chunk_bytes):
        piece = build.piece(size)
        ready = {placement.rank(s, head): [_load_reduce(build, placement, s, head, piece, channel)] for s in servers}
        if placement.servers > 1:
            ready = trees[channel % 2][head].all_reduce(build, piece, channel, ready)
        _multicast(build, placement, head, piece, channel, ready)
    return Schedule(
        name=name, collective="all_reduce", placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers, switches=[Switch(f"nvswitch{server}", server) for server in servers],
    )


def head_pieces(size_bytes: int, channels: int, heads: int, chunk_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(channel, head, size) of every chunk, chunk by chunk: each channel's share is split evenly over the heads."""
    shares = [
        (channel, head, portions(part, chunk_bytes))
        for channel, share in enumerate(cut(size_bytes, channels))
        for head, part in enumerate(cut(share, heads))
    ]
    for turn in range(max(len(chunks) for _, _, chunks in shares)):
        for channel, head, chunks in shares:
            if turn < len(chunks):
                yield channel, head, chunks[turn]


def _load_reduce(build: Builder, placement: Placement, server: int, head: int, piece: int, channel: int) -> int:
    """The head sums apart from the user's buffer, so that what its children send may come before the switch's answer."""
    switch, members = placement.ranks + server, placement.members(server)
    into = [build.send(rank, switch, piece, None, channel=channel, reduce=True, user_buffer=True) for rank in members]
    return build.send(switch, placement.rank(server, head), piece, None, into, channel=channel, reduce=True)


def _multicast(
    build: Builder, placement: Placement, head: int, piece: int, channel: int, ready: Mapping[int, Sequence[int]]
) -> None:
    for server in range(placement.servers):
        source, switch = placement.rank(server, head), placement.ranks + server
        store = build.send(source, switch, piece, None, ready[source], channel=channel)
        for rank in placement.members(server):
            build.send(switch, rank, piece, None, [store], channel=channel, user_buffer=True)


def _head_tree(placement: Placement, half: int, head: int) -> Tree:
    parents = double_tree_parents(placement.servers, half)
    return Tree({placement.rank(s, head): Edge(placement.rank(up, head), (head, head)) for s, (up, _) in parents.items()})
