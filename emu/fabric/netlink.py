"""Route netlink in batches: pyroute2 encodes the messages, one socket per namespace carries hundreds at a time.

The kernel answers a message it refuses, and the last of a batch always, so nothing goes unnoticed and thousands of
messages need no thousands of answers. pyroute2's call interface (link(), tc()) takes 200 to 400 µs a message, encoding
its message classes directly 30 to 120, a filled template (template.py) 2.
Source: netlink(7), linux/netlink.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyroute2.netlink import nlmsg

from emu.errors import FabricError
from emu.fabric.netns import inside

NETLINK_ROUTE = 0
SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11
SO_RCVBUFFORCE = 33
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_EXCL, NLM_F_CREATE, NLM_F_REPLACE = 1, 4, 0x300, 0x200, 0x400, 0x100
CREATE = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL
REPLACE = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
CHANGE = NLM_F_REQUEST
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG = 1
FLAGS_OFFSET, SEQUENCE_OFFSET = 6, 8  # in struct nlmsghdr
NLM_F_ACK_TLVS = 0x200
CHUNK_BYTES = 48 * 1024  # below the default send buffer
RECEIVE_BYTES = 4 << 20


@dataclass
class Batch:
    """Messages for one namespace, in order, each with the words to use if the kernel refuses it."""

    _messages: list[tuple[bytearray, str]] = field(default_factory=list)

    def add(self, message: nlmsg, kind: int, flags: int, what: str) -> None:
        message["header"]["type"] = kind
        message["header"]["flags"] = flags
        message.encode()
        self.add_encoded(bytearray(message.data), what)

    def add_encoded(self, data: bytearray, what: str) -> None:
        """A message that is complete but for its sequence number."""
        struct.pack_into("=I", data, SEQUENCE_OFFSET, len(self._messages) + 1)
        self._messages.append((data, what))

    def __len__(self) -> int:
        return len(self._messages)

    def chunks(self) -> Iterator[list[tuple[bytearray, str]]]:
        chunk: list[tuple[bytearray, str]] = []
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
            _ask_for_answer(chunk[-1][0])
            self._socket.send(b"".join(data for data, _ in chunk))
            self._answered({_sequence(data): what for data, what in chunk}, last=_sequence(chunk[-1][0]))

    def dump_raw(self, message: nlmsg, kind: int) -> Iterator[bytes]:
        """Every object of `kind` in this namespace that matches `message`, as the kernel sent it, header included."""
        message["header"]["type"] = kind
        message["header"]["flags"] = NLM_F_REQUEST | NLM_F_DUMP
        message.encode()
        self._socket.send(bytes(message.data))
        return self._dumped()

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

    def _answered(self, asked: dict[int, str], last: int) -> None:
        """Read answers up to that of message number `last`; the first refusal is what is reported."""
        refused = None
        answer = 0
        while answer != last:
            for kind, flags, body, raw in _split(self._socket.recv(RECEIVE_BYTES)):
                if kind != NLMSG_ERROR:
                    raise FabricError(f"netlink answered with message type {kind} where an acknowledgement was due")
                answer = _sequence(raw)
                code = struct.unpack_from("i", body)[0]
                if code and refused is None:
                    what = f"{self.netns or 'this namespace'}: {asked[answer]}"
                    refused = FabricError(f"{what}: {_reason(code, body, flags)}")
        if refused:
            raise refused

    def _dumped(self) -> Iterator[bytes]:
        while True:
            for kind, flags, body, raw in _split(self._socket.recv(RECEIVE_BYTES)):
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise FabricError(f"{self.netns}: dump refused: {_reason(struct.unpack_from('i', body)[0], body, flags)}")
                yield raw


def _ask_for_answer(message: bytearray) -> None:
    flags = struct.unpack_from("=H", message, FLAGS_OFFSET)[0]
    struct.pack_into("=H", message, FLAGS_OFFSET, flags | NLM_F_ACK)


def _sequence(message: bytes | bytearray) -> int:
    return struct.unpack_from("=I", message, SEQUENCE_OFFSET)[0]


def _split(data: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """(type, flags, body, whole message) of every message in `data`."""
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
