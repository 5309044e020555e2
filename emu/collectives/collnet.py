"""CollNet: a switch of the scale-out network adds (SHARP and its like), so that each server sends its data up once.

The reduction inside the network is modelled as a switch that is a rank of its own (Schedule.switches), one per rail: the
heads of all servers on that rail send to it (reduce), and it sends the sum back to each. It stands for the whole reduction
tree of switches. It has a port for each server, so that each head's link carries the share once each way and nothing converges
on one port: on a fabric, give it such a port for each server, not one NIC for all.

    direct  every GPU is head of 1/g of the data: scatter to the heads over the scale-up domain, up, down, gather
    chain   channel c's head is GPU c: sum along the chain of the server's GPUs to it, up, down, and back along the chain

Source: NCCL src/device/all_reduce.h (COLLNET_DIRECT, COLLNET_CHAIN), src/graph/connect.cc (connectCollNet, ncclTopoPreset).
"""

from __future__ import annotations

from collections.abc import Mapping

from emu.collectives.cut import cut, need_at_least_one, portions
from emu.collectives.nvls import head_pieces
from emu.collectives.placement import Placement, need_scale_up
from emu.collectives.schedule import Builder, Schedule, Switch
from emu.collectives.tree import STEP_BYTES


def collnet_direct_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = STEP_BYTES
) -> Schedule:
    """N servers of g GPUs: 4 steps a chunk (2 if g = 1), 2·n·size bytes, of which 2·N·size between servers and switches."""
    need_scale_up(placement, "collnet_direct")
    need_at_least_one(size_bytes=size_bytes, channels=channels, chunk_bytes=chunk_bytes)
    build = Builder()
    for channel, head, size in head_pieces(size_bytes, channels, placement.gpus_per_server, chunk_bytes):
        piece, ready = build.piece(size), {}
        for server in range(placement.servers):
            rank = placement.rank(server, head)
            others = [member for member in placement.members(server) if member != rank]
            ready[rank] = [build.send(other, rank, piece, None, channel=channel, reduce=True) for other in others]
        for rank, arrived in _in_network(build, placement, head, piece, channel, ready).items():
            for member in placement.members(placement.server(rank)):
                if member != rank:
                    build.send(rank, member, piece, None, [arrived], channel=channel)
    return _schedule("collnet_direct", placement, size_bytes, build)


def collnet_chain_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int = STEP_BYTES
) -> Schedule:
    """N servers of g GPUs: 2(g - 1) + 2 steps a chunk, 2·n·size bytes, of which 2·N·size between servers and switches."""
    need_scale_up(placement, "collnet_chain")
    need_at_least_one(size_bytes=size_bytes, channels=channels, chunk_bytes=chunk_bytes)
    build = Builder()
    for channel, share in enumerate(cut(size_bytes, channels)):
        head = channel % placement.gpus_per_server
        for size in portions(share, chunk_bytes):
            piece = build.piece(size)
            ready = {placement.rank(s, head): _chain_up(build, placement, s, head, piece, channel)
                     for s in range(placement.servers)}
            for rank, arrived in _in_network(build, placement, head, piece, channel, ready).items():
                _chain_down(build, placement, rank, piece, channel, arrived)
    return _schedule("collnet_chain", placement, size_bytes, build)


def _in_network(
    build: Builder, placement: Placement, head: int, piece: int, channel: int, ready: Mapping[int, list[int]]
) -> dict[int, int]:
    """Every head's share to the rail's switch and the sum back. Returns the transfer that brings it to each head."""
    switch, rails = placement.ranks + head, (head, head)
    into = [build.send(rank, switch, piece, rails, after, channel=channel, reduce=True) for rank, after in ready.items()]
    return {rank: build.send(switch, rank, piece, rails, into, channel=channel) for rank in ready}


def _chain_up(build: Builder, placement: Placement, server: int, head: int, piece: int, channel: int) -> list[int]:
    after: list[int] = []
    for gpu in range(head + placement.gpus_per_server - 1, head, -1):
        source, target = placement.rank(server, gpu), placement.rank(server, gpu - 1)
        after = [build.send(source, target, piece, None, after, channel=channel, reduce=True)]
    return after


def _chain_down(build: Builder, placement: Placement, head: int, piece: int, channel: int, arrived: int) -> None:
    server, first = placement.server(head), placement.gpu(head)
    for gpu in range(first, first + placement.gpus_per_server - 1):
        source, target = placement.rank(server, gpu), placement.rank(server, gpu + 1)
        arrived = build.send(source, target, piece, None, [arrived], channel=channel)


def _schedule(name: str, placement: Placement, size_bytes: int, build: Builder) -> Schedule:
    return Schedule(
        name=name, collective="all_reduce", placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers, switches=[Switch(f"sharp{rail}") for rail in range(placement.gpus_per_server)],
    )
