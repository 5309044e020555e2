"""A packet socket that sends a fixed list of frames over and over, hundreds per system call.

sendmmsg(2) over prepared iovecs: no Python runs per packet. The socket never blocks.
Source: packet(7), sendmmsg(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Sequence

from emu.errors import FabricError
from emu.fabric.netns import inside

SO_SNDBUFFORCE = 32
SEND_BUFFER_BYTES = 64 << 20
BATCH = 256
_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Msghdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.POINTER(_Iovec)),
        ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class _Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", _Msghdr), ("sent", ctypes.c_uint)]


class BatchSocket:
    """Sends `frames` in order, from the start again at their end, until `count` have gone out of `ifname` in `netns`."""

    def __init__(self, netns: str, ifname: str, frames: Sequence[bytes], count: int) -> None:
        if not frames:
            raise ValueError("no frame to send")
        with inside(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._socket.bind((ifname, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
        self._where = f"{netns} {ifname}"
        self._frames = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
        self._vectors = (_Iovec * len(frames))(
            *(_Iovec(ctypes.addressof(buffer), len(buffer)) for buffer in self._frames)
        )
        self._messages = (_Mmsghdr * len(frames))()
        for message, vector in zip(self._messages, self._vectors, strict=True):
            message.hdr.iov, message.hdr.iovlen = ctypes.pointer(vector), 1
        self.sent, self.count = 0, count

    @property
    def done(self) -> bool:
        return self.sent >= self.count

    def send_batch(self, most: int) -> int:
        """Send up to `most` frames in one system call; how many went, 0 if the kernel had no room for one."""
        start = self.sent % len(self._frames)
        length = min(most, BATCH, len(self._frames) - start, self.count - self.sent)
        sent = _libc.sendmmsg(self._socket.fileno(), ctypes.byref(self._messages[start]), length, socket.MSG_DONTWAIT)
        if sent < 0:
            code = ctypes.get_errno()
            if code == errno.EAGAIN:
                return 0
            raise FabricError(f"{self._where}: send: {os.strerror(code)}")
        self.sent += sent
        return sent

    def close(self) -> None:
        self._socket.close()
