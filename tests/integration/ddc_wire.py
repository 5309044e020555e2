"""Crafted packets with random contents through a fabric, and what arrives of them."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.fabric.wait import wait_until_empty
from emu.topology.model import Port

ETH_P_IP, ETH_P_ALL, PACKET_OUTGOING = 0x0800, 0x0003, 4
CELL_HEAD, CELL_TYPE, LOCAL, ELIDED = struct.Struct("!BBHHBBHHH"), 0x88B6, 0x02, 0x04  # ddc_cell.h
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 256 << 20
UDP, PORT, TTL = 17, 9, 64  # discard: nothing answers but the kernel, to an address that it has
ECT_0 = 2
NUMBER = struct.Struct("!I")
HEADERS_BYTES = 14 + 20 + 8
QUIET_S, WAIT_S = 0.05, 5.0


def frame(fabric: Fabric, source: Port, target: Port, number: int, payload: bytes) -> bytes:
    """UDP with a right IPv4 checksum; the number tells it from all others."""
    own, peer = fabric.ports[source], fabric.ports[target]
    data = NUMBER.pack(number) + payload
    udp = struct.pack("!HHHH", PORT, PORT, 8 + len(data), 0) + data
    head = struct.pack("!BBHHHBBH", 0x45, ECT_0, 20 + len(udp), number & 0xFFFF, 0x4000, TTL, UDP, 0)
    head += socket.inet_aton(own.address) + socket.inet_aton(peer.address)
    head = head[:10] + struct.pack("!H", 0xFFFF - ones_complement(head)) + head[12:]
    return bytes.fromhex((own.peer_mac + own.mac).replace(":", "")) + struct.pack("!H", ETH_P_IP) + head + udp


def as_routed(sent: bytes, fabric: Fabric, target: Port, hops: int = 1) -> bytes:
    """The same frame as a correct router leaves it at its target: hardware addresses, TTL, checksum."""
    head = bytearray(sent[14:34])
    head[8] -= hops
    head[10:12] = bytes(2)
    struct.pack_into("!H", head, 10, 0xFFFF - ones_complement(bytes(head)))
    port = fabric.ports[target]
    return bytes.fromhex((port.mac + port.peer_mac).replace(":", "")) + sent[12:14] + bytes(head) + sent[34:]


def ones_complement(data: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def payload(generator: random.Random, most: int) -> bytes:
    """Any length up to `most`, the longest and the shortest often."""
    return generator.randbytes(generator.choice((0, 1, most, generator.randrange(most), generator.randrange(most))))


class Wire:
    """Raw sockets on NICs: everything that is sent, and what arrives, in order."""

    def __init__(self, fabric: Fabric, nics: Sequence[Port]) -> None:
        self._fabric, self._undo = fabric, ExitStack()
        self._sockets = {nic: self._undo.enter_context(self._open(nic)) for nic in nics}
        self._arrived: dict[Port, list[bytes]] = {nic: [] for nic in nics}

    def send(self, nic: Port, data: bytes) -> None:
        self._sockets[nic].send(data)

    def arrived(self, count: int) -> dict[Port, list[bytes]]:
        """Once `count` frames have arrived in all, and none for a while after them."""
        wait_until_empty(lambda: [] if self._read() >= count else [f"{self._read()} of {count} frames"], WAIT_S, "all frames")
        time.sleep(QUIET_S)
        self._read()
        return self._arrived

    def _read(self) -> int:
        for nic, opened in self._sockets.items():
            self._arrived[nic].extend(received(opened))
        return sum(map(len, self._arrived.values()))

    def _open(self, nic: Port) -> socket.socket:
        with inside(self._fabric.netlink(nic.node).netns):
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
            opened.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        opened.bind((nic.ifname, ETH_P_IP))
        return opened

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def received(opened: socket.socket) -> Iterator[bytes]:
    """UDP frames that have come in; the hosts' ICMP answers are not looked at."""
    while True:
        try:
            raw, address = opened.recvfrom(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if address[2] != PACKET_OUTGOING and raw[23] == UDP:
            yield raw


@dataclass(frozen=True)
class Cell:
    """One frame on a link between switches; `slice`: the packet's bytes in it, padding included."""

    uplink: Port
    index: int
    count: int
    nic: int
    source: int
    number: int
    slice: bytes
    frame_bytes: int


class CellRecorder:
    """Every frame that a leaf sends out of its uplinks from now on, in order."""

    def __init__(self, fabric: Fabric, leaf: str) -> None:
        self._leaf = leaf
        with inside(fabric.netlink(leaf).netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)

    def cells(self) -> list[Cell]:
        """So far. ValueError for a frame that is no cell."""
        found = []
        while True:
            try:
                raw, address = self._socket.recvfrom(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            if address[2] == PACKET_OUTGOING and address[0].startswith("up"):
                found.append(self._cell(Port(self._leaf, address[0]), raw))

    def _cell(self, uplink: Port, raw: bytes) -> Cell:
        mark, index, _leaf, to_nic, flags, count, source, number, kind = CELL_HEAD.unpack_from(raw)
        if kind != CELL_TYPE or mark != LOCAL or flags & ~ELIDED != LOCAL:
            raise ValueError(f"{uplink}: {raw[:14].hex()} is no cell's header")
        return Cell(uplink, index, count, to_nic, source, number, raw[CELL_HEAD.size :], len(raw))

    def __enter__(self) -> CellRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def put_together(cells: Iterable[Cell]) -> dict[tuple[int, int], bytes]:
    """(NIC, number) -> the IP packet and its padding, from cells of one leaf in any order."""
    slices: dict[tuple[int, int], dict[int, Cell]] = {}
    for cell in cells:
        slices.setdefault((cell.nic, cell.number), {})[cell.index] = cell
    for key, found in slices.items():
        assert sorted(found) == list(range(found[0].count)), f"packet {key} has cells {sorted(found)} of {found[0].count}"
    return {key: b"".join(found[at].slice for at in sorted(found)) for key, found in slices.items()}
