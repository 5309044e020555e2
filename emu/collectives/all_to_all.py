"""All-to-all: every rank has a block for every rank. In NCCL's order or as a naive burst, with and without PXN.

order=nccl   round by round, each round a permutation, so that nobody is sent to by two at once: groups of up to 8 ranks
             at the distances 0, 1, 3, 6, 10, … (mod a power of two), and in a group at 0, 1, 2, …; a rank sends the block
             of round k when that of round k - in_flight has come in (NCCL: batches of 8 sends and receives a channel; a
             sliding window stands for the batch's edge)
order=burst  all blocks at once, everybody to rank 0 first, then to rank 1, …: n to one

pxn=True: a block goes over the scale-up domain to the local GPU whose NIC is on the target's rail, and from there along
that rail, in one message for all GPUs of the server (NCCL: of a group of 8). Nothing crosses rails on the wire, and a NIC
has g times fewer connections.
A block is one message; NCCL's 128 KiB network chunks follow one another on one connection and are the same stream.
Source: NCCL src/init.cc (ncclP2pSchedule), src/enqueue.cc (batches), src/graph/search.cc (ncclTopoGetNetDev, P2P_PXN_LEVEL 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from emu.collectives.cut import cut, need_at_least_one
from emu.collectives.placement import Placement, need_scale_up
from emu.collectives.schedule import Builder, Schedule, Transfer
from emu.errors import UsageError, unknown

IN_FLIGHT = GROUP = 8  # NCCL_MAX_DEV_WORK_P2P_PER_BATCH
ORDERS = ("nccl", "burst")
Blocks = Sequence[Sequence[int]]  # bytes by source and target


def all_to_all(
    placement: Placement, size_bytes: int, *, order: str = "nccl", pxn: bool = False, in_flight: int = IN_FLIGHT
) -> Schedule:
    """n ranks with size/n for each, itself included: (n - 1)·size bytes between ranks.

    order=nccl: ceil((n - 1)/in_flight) steps; burst: 1. With PXN, for N > 1 servers of g > 1 GPUs, twice
    ceil((N - 1)/max(1, in_flight div g)), and 2; the blocks that have to change rail, N(N - 1)g(g - 1) of them, travel over
    the scale-up domain as well.
    """
    need_at_least_one(size_bytes=size_bytes)
    row = cut(size_bytes, placement.ranks)
    return all_to_all_of(placement, [row] * placement.ranks, size_bytes, order=order, pxn=pxn, in_flight=in_flight)


def all_to_all_of(
    placement: Placement, blocks: Blocks, size_bytes: int, *, order: str = "nccl", pxn: bool = False,
    in_flight: int = IN_FLIGHT,
) -> Schedule:
    """All-to-all with blocks[source][target] bytes, which may be 0; `size_bytes` is what bandwidths are reckoned from."""
    need_at_least_one(in_flight=in_flight)
    if order not in ORDERS:
        raise unknown("all-to-all order", order, ORDERS)
    if [len(row) for row in blocks] != [placement.ranks] * placement.ranks:
        raise UsageError(f"blocks are not {placement.ranks} rows of {placement.ranks}, one for each rank")
    build = Builder()
    for target in range(placement.ranks):
        for source in range(placement.ranks):
            build.piece(blocks[source][target], source, target)
    (_by_relay if pxn else _direct)(build, placement, order, in_flight)
    return Schedule(
        name=f"{order}_pxn" if pxn else order, collective="all_to_all", placement=placement, size_bytes=size_bytes,
        pieces=build.pieces, transfers=build.transfers,
    )


def send_recv(placement: Placement, size_bytes: int) -> Schedule:
    """Each rank sends `size_bytes` to the next one, the last to the first: 1 step, n·size bytes (nccl-tests sendrecv)."""
    need_at_least_one(size_bytes=size_bytes)
    build = Builder()
    for rank in range(placement.ranks):
        target = (rank + 1) % placement.ranks
        build.send(rank, target, build.piece(size_bytes, rank, target), placement.rails(rank, target))
    return Schedule(
        name="send_recv", collective="send_recv", placement=placement, size_bytes=size_bytes, pieces=build.pieces,
        transfers=build.transfers,
    )


def quadratic_distances(count: int) -> list[int]:
    """Each of 0 … count - 1 once: x(x + 1)/2 mod the next power of two, without those that are too big."""
    power = 1 << (count - 1).bit_length()
    distances = ((x * x + x) // 2 % power for x in range(power))
    return [distance for distance in distances if distance < count]


def nccl_rounds(placement: Placement) -> list[list[int]]:
    """Targets of all ranks, round by round; the first round is every rank to itself."""
    gpus, ranks = placement.gpus_per_server, placement.ranks
    size = gcd(GROUP, gpus) if placement.servers > 1 else gpus
    groups = ranks // size
    return [
        [(rank // size + far) % groups * size + (rank % size + near) % size for rank in range(ranks)]
        for far in quadratic_distances(groups)
        for near in range(size)
    ]


def _direct(build: Builder, placement: Placement, order: str, in_flight: int) -> None:
    ranks, naive = placement.ranks, order == "burst"
    rounds = [[target] * ranks for target in range(ranks)] if naive else nccl_rounds(placement)[1:]
    came_in: list[list[int | None]] = []  # by round and rank
    for number, targets in enumerate(rounds):
        came_in.append([None] * ranks)
        awaited = [None] * ranks if naive or number < in_flight else came_in[number - in_flight]
        for source, target in enumerate(targets):
            piece, before = target * ranks + source, awaited[source]
            if source != target and build.pieces[piece].size_bytes:
                after = () if before is None else (before,)
                came_in[-1][target] = build.send(source, target, piece, placement.rails(source, target), after)


def _by_relay(build: Builder, placement: Placement, order: str, in_flight: int) -> None:
    """Server by server: what a server has for another one goes out on all rails at once."""
    need_scale_up(placement, "PXN")
    naive, servers = order == "burst", placement.servers
    window = max(1, in_flight // placement.gpus_per_server)
    for server in range(servers):
        _inside(build, placement, server)
    rounds = [[target] * servers for target in range(servers)] if naive else [
        [(server + distance) % servers for server in range(servers)] for distance in quadratic_distances(servers)[1:]
    ]
    came_in: list[dict[int, int]] = []  # by round: the transfer that reached a rank
    for number, targets in enumerate(rounds):
        came_in.append({})
        awaited = {} if naive or number < window else came_in[number - window]
        for server, target in enumerate(targets):
            if server != target:
                _to_server(build, placement, server, target, awaited, came_in[-1])


def _inside(build: Builder, placement: Placement, server: int) -> None:
    members = placement.members(server)
    for distance in range(1, len(members)):
        for source in members:
            target = placement.rank(server, placement.gpu(source) + distance)
            piece = target * placement.ranks + source
            if build.pieces[piece].size_bytes:
                build.send(source, target, piece, None)


def _to_server(
    build: Builder, placement: Placement, server: int, other: int, awaited: dict[int, int], came_in: dict[int, int]
) -> None:
    members = placement.members(server)
    waits = {member: (awaited[member],) if member in awaited else () for member in members}
    for relay, target in zip(members, placement.members(other), strict=True):
        first = target * placement.ranks + members.start  # the members' pieces for one target are neighbours
        after = list(waits[relay])
        for piece, member in enumerate(members, start=first):
            if member != relay and build.pieces[piece].size_bytes:
                after.append(build.send(member, relay, piece, None, waits[member]))
        pieces = range(first, first + len(members))
        size_bytes = sum(piece.size_bytes for piece in build.pieces[pieces.start : pieces.stop])
        if size_bytes:
            rails = (placement.gpu(relay),) * 2
            came_in[target] = build.add(Transfer(relay, target, size_bytes, tuple(after), 0, pieces, False, rails))
