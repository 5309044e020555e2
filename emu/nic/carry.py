"""A collective with real numbers over the live fabric: the sum is right only if every packet came, once, where it belongs.

    with PortSockets(fabric) as sockets:
        carried = carry(sockets, schedule, cluster, contribution, add)     # contribution(rank, piece) and sums are bytes
    carried.state[rank][piece]

What goes out after what, and what an arrival does, is the Board's (emu/collectives/play.py). Between its `start` and its `land`
a load is a message: WRITE packets made with Scapy, sent out of the source's port, forwarded by the fabric's switches, taken at
the target's port, refused if the iCRC is wrong, and placed by their own address. The target adds or copies when all are there,
as from NCCL's channel buffers: a message has its own place in the target's memory, or it could overwrite what is being sent on.
A message over several hops is received whole and sent again by the GPU between them.

A switch that computes takes part as a rank: packets end at its own ports, in its namespace (emu/nic/ways.py), it adds what they
bring, and sends the sum out of these ports through their queues. It adds whole messages, not packets as the hardware does.

No packet is sent twice. The run ends when none is on the way any more; what has not arrived whole then is an error that says so.
"""

from __future__ import annotations

import select
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from emu.collectives.play import Board, State
from emu.collectives.schedule import Schedule
from emu.errors import FabricError
from emu.nic.cluster import Cluster
from emu.nic.incast import flow_between
from emu.nic.port_socket import PortSocket, PortSockets
from emu.nic.ways import Way, ways
from emu.roce import place
from emu.roce.psn import psn_add
from emu.roce.wire import RETH, parse
from emu.topology.model import Port

BASE_VA = 0x7F00_0000_0000  # where a process's large buffers lie
CHANNEL_QPNS = 1 << 16      # a target knows a queue pair by the sender's interface number and the channel
STALL_S = 5.0               # kernel time without an arrival after which a packet on the way is given up
SHOWN = 3


@dataclass
class Carried:
    """Pieces by rank, packets that each port sent and took in, and frames that were not placed, by port and outcome."""

    state: State = field(default_factory=list)
    sent: Counter[Port] = field(default_factory=Counter)
    arrived: Counter[Port] = field(default_factory=Counter)
    refused: Counter[tuple[Port, place.Outcome]] = field(default_factory=Counter)


def carry(
    sockets: PortSockets, schedule: Schedule, cluster: Cluster, contribution: Callable[[int, int], bytes],
    add: Callable[[bytes, bytes], bytes], stall_s: float = STALL_S,
) -> Carried:
    """Run a schedule. What a rank has not got is sent as zeros. FabricError: what did not arrive whole, and what was refused."""
    board = Board(schedule, add)
    board.fill(contribution)
    carriage = _Carriage(sockets, board, ways(schedule, cluster, sockets.fabric.plan))
    carriage.run(stall_s)
    carriage.carried.state = board.result()
    return carriage.carried


@dataclass(frozen=True)
class _Landing:
    """Where message number `hop` of a transfer's way is placed."""

    index: int
    hop: int
    memory: place.Placement


class _Carriage:
    """The messages under way, and what is still to be sent."""

    def __init__(self, sockets: PortSockets, board: Board, found: list[Way]) -> None:
        self._fabric, self._board, self._ways = sockets.fabric, board, found
        self._transfers = board.schedule.transfers
        self._addresses = list(accumulate((transfer.size_bytes for transfer in self._transfers), initial=BASE_VA))
        ports = dict.fromkeys(port for way in found for hop in way for port in hop)
        self._sockets = {port: sockets[port] for port in ports}
        self._landings: dict[tuple[Port, int], _Landing] = {}
        self._nowhere = place.Placement(0)
        self._psn: Counter[tuple[Port, Port, int]] = Counter()
        self._missing = [len(transfer.after) for transfer in self._transfers]
        self._releases: list[list[int]] = [[] for _ in found]
        for index, transfer in enumerate(self._transfers):
            for before in transfer.after:
                self._releases[before].append(index)
        self._packets, self._left = 0, len(found)
        self.carried = Carried()

    def run(self, stall_s: float) -> None:
        listening = {at.fileno(): at for at in self._sockets.values()}
        with select.epoll() as poll:
            for descriptor, at in listening.items():
                at.forget()
                poll.register(descriptor, select.EPOLLIN)
            for index in [index for index, count in enumerate(self._missing) if not count]:
                self._start(index)
            while self._packets > 0 and (ready := poll.poll(stall_s)):
                for descriptor, _ in ready:
                    self._take(listening[descriptor])
        if self._left:
            raise FabricError(self._report(stall_s))

    def _start(self, index: int) -> None:
        self._board.start(index)
        load, pieces = self._board.under_way[index], self._board.schedule.pieces
        data = b"".join(load.get(piece, bytes(pieces[piece].size_bytes)) for piece in self._transfers[index].pieces)
        self._send(index, 0, data)

    def _send(self, index: int, hop: int, data: bytes) -> None:
        from emu.roce.packets import write_frames  # Scapy takes a second to import

        source, target = self._ways[index][hop]
        ends, channel = (self._fabric.ports[source], self._fabric.ports[target]), self._transfers[index].channel
        flow = flow_between(*ends, channel * CHANNEL_QPNS + ends[0].ifindex)
        va, psn = self._addresses[index], self._psn[source, target, channel]
        frames = write_frames(flow, va=va, payload=data, path_mtu=self._fabric.plan.topology.path_mtu_bytes, first_psn=psn)
        self._psn[source, target, channel] = psn_add(psn, len(frames))
        self._landings[target, index] = _Landing(index, hop, place.Placement(len(data), base_va=va))
        self._packets += len(frames)
        self.carried.sent[source] += len(frames)
        self._sockets[source].send(frames)

    def _take(self, at: PortSocket) -> None:
        for frame in at.frames():
            self._packets -= 1
            self.carried.arrived[at.port] += 1
            landing = self._landing(at.port, frame)
            memory = landing.memory if landing else self._nowhere
            outcome = memory.accept(frame)
            if outcome is not place.Outcome.PLACED:
                self.carried.refused[at.port, outcome] += 1
            elif memory.complete:
                self._complete(at.port, landing)

    def _landing(self, port: Port, frame: bytes) -> _Landing | None:
        """By the packet's own address, which may be wrong as long as the iCRC has not been looked at."""
        packet = parse(frame)
        if packet is None or len(packet.body) < RETH.size:
            return None
        va, _, _ = RETH.unpack_from(packet.body)
        return self._landings.get((port, bisect_right(self._addresses, va) - 1))

    def _complete(self, port: Port, landing: _Landing) -> None:
        index, data = landing.index, bytes(landing.memory.buffer)
        del self._landings[port, index]
        if landing.hop + 1 < len(self._ways[index]):
            self._send(index, landing.hop + 1, data)
            return
        self._board.under_way[index] = self._cut(index, data)
        self._board.land(index)
        self._left -= 1
        for released in self._releases[index]:
            self._missing[released] -= 1
            if not self._missing[released]:
                self._start(released)

    def _cut(self, index: int, data: bytes) -> dict[int, bytes]:
        """A message into its pieces."""
        offsets, load = self._board.schedule.offsets, {}
        first = offsets[self._transfers[index].pieces.start]
        for piece in self._transfers[index].pieces:
            start = offsets[piece] - first
            load[piece] = data[start:start + self._board.schedule.pieces[piece].size_bytes]
        return load

    def _report(self, stall_s: float) -> str:
        lines = []
        for port, index in list(self._landings)[:SHOWN]:
            transfer, memory = self._transfers[index], self._landings[port, index].memory
            lacking = sum(size for _, size in memory.missing())
            lines.append(f"transfer {index} ({transfer.source} -> {transfer.target}) lacks {lacking} of {len(memory.buffer)} "
                         f"bytes at {port}")
        lines += [f"{port} refused {count} {outcome}" for (port, outcome), count in self.carried.refused.items()]
        if self._packets > 0:
            lines.append(f"{self._packets} packets on the way were not seen for {stall_s:g} s")
        return f"{self._left} of {len(self._transfers)} transfers have not arrived: {'; '.join(lines)}"
