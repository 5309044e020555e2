"""One small packet there and back: an ICMP echo, answered by the other server's kernel. For measuring round trips."""

from __future__ import annotations

import socket
import struct
import time

from emu.errors import FabricError
from emu.fabric.fabric import Fabric
from emu.fabric.netns import inside
from emu.topology.model import Port

ECHO_REQUEST, ECHO_REPLY = 8, 0  # RFC 792
IDENTIFIER = 0x5242
PAYLOAD_BYTES = 36
FRAME_BYTES = 14 + 20 + 8 + PAYLOAD_BYTES  # 78, as long as a RoCE write without payload
TIMEOUT_S = 5.0


def round_trips_ns(fabric: Fabric, source: Port, target: Port, count: int) -> list[int]:
    """Kernel ns of `count` echoes, one after the other; FabricError if one doesn't come back."""
    plan = fabric.ports
    with inside(fabric.netlink(source.node).netns):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_ICMP)
    with raw:
        raw.settimeout(TIMEOUT_S)
        raw.bind((plan[source].address, 0))
        raw.connect((plan[target].address, 0))
        return [_echo(raw, number, f"{source} -> {target}") for number in range(count)]


def _echo(raw: socket.socket, number: int, what: str) -> int:
    request = _message(number)
    start_ns = time.monotonic_ns()
    raw.send(request)
    while True:
        try:
            reply = raw.recv(2048)
        except TimeoutError:
            raise FabricError(f"{what}: echo {number} did not come back within {TIMEOUT_S:g} s") from None
        kind, _, _, identifier, sequence = struct.unpack_from("!BBHHH", reply, (reply[0] & 0xF) * 4)
        if (kind, identifier, sequence) == (ECHO_REPLY, IDENTIFIER, number):
            return time.monotonic_ns() - start_ns


def _message(number: int) -> bytes:
    body = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, IDENTIFIER, number) + bytes(PAYLOAD_BYTES)
    total = sum(struct.unpack(f"!{len(body) // 2}H", body))
    total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!BBHHH", ECHO_REQUEST, 0, ~(total + (total >> 16)) & 0xFFFF, IDENTIFIER, number) + bytes(PAYLOAD_BYTES)
