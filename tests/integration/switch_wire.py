"""Crafted RoCE packets through one leaf, and a record of each in the order in which the leaf took them: in by, out by, when."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.nic.head import head_words
from emu.roce.wire import ROCE_UDP_PORT
from emu.switch.oracle import Packet
from emu.topology.model import Port

ETH_P_ALL, PACKET_OUTGOING = 0x0003, 4
SO_RCVBUFFORCE, SO_SNDBUFFORCE, SO_TIMESTAMPNS = 33, 32, 35
BUFFER_BYTES = 256 << 20
HEADERS_BYTES, ICRC_BYTES, ELIDED_BYTES = 54, 4, 78
WRITE_ONLY, PSN_BITS = 0x0A, 24


@dataclass(frozen=True)
class Sent:
    """One crafted packet: its flow and its number, which no other packet has."""

    source: Port
    target: Port
    qpns: tuple[int, int]
    number: int
    frame_bytes: int


@dataclass(frozen=True)
class Passed:
    """What the leaf saw of it; `out` is None if it never left."""

    packet: Packet
    out: Port | None


def frame(fabric: Fabric, sent: Sent) -> bytes:
    """A well-formed WRITE of zeros; sent.number is its PSN."""
    words = head_words(fabric.ports[sent.source], fabric.ports[sent.target], *sent.qpns)
    head = bytearray(struct.pack("=7Q", *words)[2:])
    struct.pack_into("!H", head, 16, sent.frame_bytes - 14)
    struct.pack_into("!H", head, 38, sent.frame_bytes - 34)
    struct.pack_into("!H", head, 24, 0xFFFF - ones_complement(head[14:34]))
    head[42] = WRITE_ONLY
    struct.pack_into("!I", head, 50, sent.number)
    return bytes(head).ljust(sent.frame_bytes, b"\0")


def ones_complement(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class LeafRecorder:
    """Every RoCE frame that one leaf takes in or gives out, in order, from now on."""

    def __init__(self, fabric: Fabric, leaf: str) -> None:
        self._fabric, self._leaf = fabric, leaf
        with inside(fabric.netlink(leaf).netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.setblocking(False)
        self._ports = {port.port.ifname: port for port in fabric.ports.values() if port.port.node == leaf}

    def passed(self) -> list[Passed]:
        """What came in by a port towards a server, in order, each with the port by which it left."""
        frames = list(self._frames())
        outs = {raw[42:HEADERS_BYTES]: port for raw, port, outgoing, _ in frames if outgoing}
        servers = {server.name for server in self._fabric.plan.topology.servers}
        return [
            Passed(self._packet(raw, port, at_ns), outs.get(raw[42:HEADERS_BYTES]))
            for raw, port, outgoing, at_ns in frames
            if not outgoing and self._fabric.ports[port].peer.node in servers
        ]

    def _frames(self) -> Iterator[tuple[bytes, Port, bool, int]]:
        while True:
            try:
                raw, extra, _, address = self._socket.recvmsg(65536, 256)
            except BlockingIOError:
                return
            if raw[12:14] == b"\x08\0" and raw[36:38] == struct.pack("!H", ROCE_UDP_PORT):
                seconds, nanoseconds = struct.unpack("=qq", extra[0][2])
                port = self._ports[address[0]].port
                yield raw, port, address[2] == PACKET_OUTGOING, seconds * 1_000_000_000 + nanoseconds

    def _packet(self, raw: bytes, port: Port, at_ns: int) -> Packet:
        source, target, sport = struct.unpack_from("!IIH", raw, 26)
        elided, full = self._fabric.plan.elided_sizes
        length = full if self._fabric.elided and len(raw) == elided else len(raw)
        return Packet(ifindex=self._fabric.ports[port].ifindex, source=source, target=target, udp_sport=sport,
                      target_qp=int.from_bytes(raw[47:50], "big"), count_bytes=length, at_ns=at_ns)

    def __enter__(self) -> LeafRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def random_packets(sources: list[Port], targets: list[Port], count: int, seed: int, sizes: list[int]) -> list[Sent]:
    """`count` packets of a few flows from each source, in random order, of random length."""
    generator = random.Random(seed)
    flows = [(source, target, (100 + 10 * at + qp, 500 + 10 * at + qp))
             for at, source in enumerate(sources) for qp, target in enumerate(targets)]
    return [Sent(*generator.choice(flows), number=number, frame_bytes=generator.choice(sizes)) for number in range(count)]


class Sockets:
    """Raw sockets of the NICs, opened when first used."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric, self._sockets, self._undo = fabric, {}, ExitStack()

    def send(self, sent: Sent) -> None:
        if sent.source not in self._sockets:
            with inside(self._fabric.netlink(sent.source.node).netns):
                opened = self._undo.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
            opened.bind((sent.source.ifname, 0))
            self._sockets[sent.source] = opened
        self._sockets[sent.source].send(frame(self._fabric, sent))

    def __enter__(self) -> Sockets:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
