"""A packet socket at one port, a server's or a switch's: raw frames out of it, and the RoCE frames that come to its address.

A switch port sees what it forwards as well; that is not for it, by its IP address. What is for it also goes up the host's
stack, which would answer "port unreachable": a UDP socket that nobody reads takes it instead.
Source: packet(7), udp(7).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from emu.errors import FabricError
from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.roce.wire import ROCE_UDP_PORT
from emu.topology.model import Port

ETH_P_IP = 0x0800
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
BUFFER_BYTES = 64 << 20
FRAME_MAX_BYTES = 65536
PROTOCOL, TARGET, UDP_TARGET = slice(23, 24), slice(30, 34), slice(36, 38)  # IPv4 without options, as a NIC sends it
UDP = b"\x11"


class PortSockets:
    """Of a fabric's ports, each opened when it is first asked for; kept, because the kernel takes some 10 ms to close one."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._opened: dict[Port, PortSocket] = {}

    def __getitem__(self, port: Port) -> PortSocket:
        if port not in self._opened:
            self._opened[port] = PortSocket(self.fabric, port)
        return self._opened[port]

    def __enter__(self) -> PortSockets:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._opened.values():
            opened.close()


class PortSocket:
    """Open from now on; `send` waits for room in the kernel, `frames` never waits."""

    def __init__(self, fabric: Fabric, port: Port) -> None:
        address = fabric.ports[port].address
        self.port, self._address = port, socket.inet_aton(address)
        with ExitStack() as closing:
            with inside(fabric.netlink(port.node).netns):
                raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
                self._socket = closing.enter_context(raw)
                sink = closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
            for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
                raw.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            raw.bind((port.ifname, ETH_P_IP))
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            sink.bind((address, ROCE_UDP_PORT))
            self._closing = closing.pop_all()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frames: Iterable[bytes]) -> None:
        """FabricError if the port's queue drops one."""
        for frame in frames:
            try:
                self._socket.send(frame)
            except OSError as error:
                raise FabricError(f"{self.port}: send: {error.strerror}") from None

    def frames(self) -> Iterator[bytes]:
        """RoCE frames that have come to the port's own address since the last call."""
        while True:
            try:
                frame = self._socket.recv(FRAME_MAX_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if (frame[PROTOCOL], frame[TARGET], frame[UDP_TARGET]) == (UDP, self._address, ROCE_UDP_PORT.to_bytes(2, "big")):
                yield frame

    def forget(self) -> None:
        """What has come so far, as while nobody listened."""
        for _ in self.frames():
            pass

    def close(self) -> None:
        self._closing.close()
