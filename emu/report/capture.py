"""Capture any port to pcapng, in fabric time: kernel time since the capture began, over the dilation.

A packet socket with kernel timestamps; Python reads it when the run is over, so capturing disturbs no clock. Frames are as they
were sent: the eBPF NIC leaves the iCRC at 0 unless the run asks for it (Transport.icrc), because computing it costs as much as
a hop. A frame that travelled without its payload keeps its full length as the packet's original length, and its iCRC is that
of the whole frame.
Source: packet(7), socket(7) SO_TIMESTAMPNS.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.nic.engine import is_tick
from emu.report import pcapng
from emu.topology.model import Port

ETH_P_ALL, PACKET_OUTGOING = 0x0003, 4
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
BUFFER_BYTES = 1 << 30
FRAME_MAX_BYTES = 65536
PACKET_STATISTICS, SOL_PACKET = 6, 263


class Capture:
    """Everything at `port` from now on, both ways, in order of time. `lost` packets did not fit the socket's buffer."""

    def __init__(self, fabric: Fabric, port: Port) -> None:
        self.port, self._fabric = port, fabric
        with inside(fabric.netlink(port.node).netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((port.ifname, ETH_P_ALL))
        self._socket.setblocking(False)
        self._began_ns = time.time_ns()
        self.lost = 0

    def write(self, path: Path) -> int:
        """Write what has been captured; returns the number of packets."""
        about = f"fabric time, dilation {self._fabric.dilation}; payload={'elided' if self._fabric.elided else 'full'}; "
        about += "iCRC as sent, 0 if the run did without"
        return pcapng.write(path, str(self.port), self.packets(), about)

    def packets(self) -> list[pcapng.Captured]:
        """What has been captured and not been asked for yet."""
        found = sorted(self._read(), key=lambda packet: packet.at_ns)
        self.lost += struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        return found

    def _read(self) -> Iterator[pcapng.Captured]:
        elided_bytes, full_bytes = self._fabric.plan.elided_sizes
        while True:
            try:
                raw, ancillary, _, address = self._socket.recvmsg(FRAME_MAX_BYTES, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return
            if is_tick(raw):
                continue
            seconds, rest = struct.unpack("qq", ancillary[0][2])
            elided = self._fabric.elided and len(raw) == elided_bytes
            original = full_bytes if elided else len(raw)
            at_ns = round(self._fabric.scale.fabric_ns(seconds * 1_000_000_000 + rest - self._began_ns))
            sent = address[2] == PACKET_OUTGOING
            yield pcapng.Captured(max(0, at_ns), sent, raw, original)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
