"""Route netlink in batches: pyroute2 encodes the messages, one socket per namespace carries hundreds at a time.

Each message is acknowledged, so a refusal is reported with what was asked. Encoding a message class directly costs
about 30 µs; pyroute2's call interface (link(), tc()) about 300 µs, which at 10,000 messages is the difference.
Source: netlink(7), linux/netlink.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyroute2.netlink import nlmsg

from emu.errors import FabricError
from emu.fabric.netns import inside

NETLINK_ROUTE = 0
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_RCVBUFFORCE = 33
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_EXCL, NLM_F_CREATE, NLM_F_REPLACE = 1, 4, 0x300, 0x200, 0x400, 0x100
CREATE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
REPLACE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
CHANGE = NLM_F_REQUEST | NLM_F_ACK
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
NLM_F_ACK_TLVS = 0x200
CHUNK_BYTES = 48 * 1024  # below the default send buffer
RECEIVE_BYTES = 4 << 20


@dataclass
class Batch:
    """Messages for one namespace, in order, each with the words to use if the kernel refuses it."""

    _messages: list[tuple[bytes, str]] = field(default_factory=list)

    def add(self, message: nlmsg, kind: int, flags: int, what: str) -> None:
        message["header"]["type"] = kind
        message["header"]["flags"] = flags
        message["header"]["sequence_number"] = len(self._messages) + 1
        message.encode()
        self._messages.append((bytes(message.data), what))

    def __len__(self) -> int:
        return len(self._messages)

    def chunks(self) -> Iterator[list[tuple[bytes, str]]]:
        chunk: list[tuple[bytes, str]] = []
        size = 0
        for message in self._messages:
            if chunk and size + len(message[0]) > CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(message)
            size += len(message[0])
        if chunk:
            yield chunk


class Netlink:
    """A route netlink socket that lives in namespace `netns` (None: the caller's own)."""

    def __init__(self, netns: str | None) -> None:
        self.netns = netns
        self._socket = self._open() if netns is None else self._open_inside(netns)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        self._socket.bind((0, 0))

    def run(self, batch: Batch) -> None:
        """Send everything; FabricError at the first message that the kernel refused."""
        for chunk in batch.chunks():
            self._socket.send(b"".join(data for data, _ in chunk))
            self._acknowledged([what for _, what in chunk])

    def dump(self, message: nlmsg, kind: int) -> list[Any]:
        """Every object of `kind` in this namespace that matches `message`, decoded by its class."""
        message["header"]["type"] = kind
        message["header"]["flags"] = NLM_F_REQUEST | NLM_F_DUMP
        message.encode()
        self._socket.send(bytes(message.data))
        return list(self._dumped(type(message)))

    def ask(self, request: bytes) -> bytes:
        """One raw request, one raw answer."""
        self._socket.send(request)
        return self._socket.recv(CHUNK_BYTES)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> socket.socket:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_ROUTE)

    def _open_inside(self, netns: str) -> socket.socket:
        with inside(netns):
            return self._open()

    def _acknowledged(self, expected: list[str]) -> None:
        """One answer per message, in order."""
        waiting = iter(expected)
        refused = None
        for _ in range(len(expected)):
            body, flags = self._next_answer()
            what = next(waiting)
            code = struct.unpack_from("i", body)[0]
            if code and refused is None:
                refused = FabricError(f"{self.netns or 'this namespace'}: {what}: {_reason(code, body, flags)}")
        if refused:
            raise refused

    def _next_answer(self) -> tuple[bytes, int]:
        if not getattr(self, "_pending", None):
            self._pending = list(_split(self._socket.recv(RECEIVE_BYTES)))
        kind, flags, body = self._pending.pop(0)
        if kind != NLMSG_ERROR:
            raise FabricError(f"netlink answered with message type {kind} where an acknowledgement was due")
        return body, flags

    def _dumped(self, decoder: type[nlmsg]) -> Iterator[Any]:
        while True:
            for kind, flags, body, raw in _split_raw(self._socket.recv(RECEIVE_BYTES)):
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise FabricError(f"{self.netns}: dump refused: {_reason(struct.unpack_from('i', body)[0], body, flags)}")
                message = decoder(raw)
                message.decode()
                yield message


def _split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    return ((kind, flags, body) for kind, flags, body, _ in _split_raw(data))


def _split_raw(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    offset = 0
    while offset + 16 <= len(data):
        length, kind, flags = struct.unpack_from("IHH", data, offset)
        yield kind, flags, data[offset + 16 : offset + length], data[offset : offset + length]
        offset += (length + 3) & ~3


def _reason(code: int, body: bytes, flags: int) -> str:
    """The kernel's own words if it gave any, else the errno's."""
    words = os.strerror(-code)
    if flags & NLM_F_ACK_TLVS:
        offset = 4 + 16  # error code, the refused header (NETLINK_CAP_ACK leaves out its payload)
        while offset + 4 <= len(body):
            length, kind = struct.unpack_from("HH", body, offset)
            if kind == NLMSGERR_ATTR_MSG:
                return f"{words} ({body[offset + 4 : offset + length].split(bytes(1))[0].decode()})"
            offset += max(4, (length + 3) & ~3)
    return words
