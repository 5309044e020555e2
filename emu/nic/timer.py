"""A periodic timer as a file descriptor (timerfd_create(2)), because Python 3.11 has none: epoll waits on it and sockets."""

from __future__ import annotations

import ctypes
import os
import struct

from emu.errors import FabricError

_libc = ctypes.CDLL(None, use_errno=True)
CLOCK_MONOTONIC, TFD_NONBLOCK_CLOEXEC = 1, os.O_NONBLOCK | os.O_CLOEXEC


class Timer:
    """Readable every `period_ns` of kernel time, first after one period."""

    def __init__(self, period_ns: int) -> None:
        self._fd = _libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK_CLOEXEC)
        seconds, rest = divmod(period_ns, 1_000_000_000)
        spec = struct.pack("qqqq", seconds, rest, seconds, rest)
        if self._fd < 0 or _libc.timerfd_settime(self._fd, 0, spec, None) < 0:
            raise FabricError(f"timer of {period_ns} ns: {os.strerror(ctypes.get_errno())}")

    def fileno(self) -> int:
        return self._fd

    def expirations(self) -> int:
        """How many periods have ended since the last call."""
        try:
            return struct.unpack("Q", os.read(self._fd, 8))[0]
        except BlockingIOError:
            return 0

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
