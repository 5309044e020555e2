"""A cable between two network namespaces, and raw frames over it: what the tests of the BPF programs stand on."""

from __future__ import annotations

import errno
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

from emu.bpf.loader import Bpf
from emu.fabric import netns

ETH_P_ALL, ETH_P_IP, ETH_P_IPV6 = 0x0003, 0x0800, 0x86DD
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
SOCKET_BYTES = 256 << 20  # a held queue must not make the sender wait
MTU_BYTES = 9000
CLSACT = {"ingress": 0xFFFFFFF2, "egress": 0xFFFFFFF3}
DEADLINE_S = 10.0


@dataclass
class End:
    """One end of the cable: interface `ifname` with index `ifindex` in namespace `netns`."""

    netns: str
    ifname: str
    ifindex: int
    mac: bytes
    peer_mac: bytes = b""
    undo: ExitStack = field(default_factory=ExitStack)

    def ip(self, *arguments: str) -> str:
        return command("ip", "-n", self.netns, *arguments)

    def tc(self, *arguments: str) -> str:
        return command("tc", "-n", self.netns, *arguments)

    def attach(self, program_fd: int, direction: str) -> None:
        """Run a program on every packet, as the fabric does: a clsact filter by descriptor."""
        with netns.inside(self.netns), IPRoute() as route:
            route.tc("add", "clsact", index=self.ifindex)
            options = {"fd": program_fd, "name": "test", "parent": CLSACT[direction], "direct_action": True}
            route.tc("add-filter", "bpf", self.ifindex, **options)

    def raw_socket(self) -> socket.socket:
        with netns.inside(self.netns):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.undo.callback(raw.close)
        raw.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BYTES)
        raw.bind((self.ifname, ETH_P_ALL))
        raw.settimeout(DEADLINE_S)
        return raw

    def ethernet(self, ethertype: int) -> bytes:
        return self.peer_mac + self.mac + struct.pack("!H", ethertype)

    def ipv4(self, payload: bytes, ecn: int, *, protocol: int = 17, options: bytes = b"", fragment: int = 0) -> bytes:
        """An Ethernet frame from 10.0.0.1 to 10.0.0.2, with a right header checksum."""
        words = 5 + len(options) // 4
        start = struct.pack("!BBHHHBBH", 0x40 | words, ecn, words * 4 + len(payload), 7, fragment, 64, protocol, 0)
        header = start + socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2") + options
        checksum = 0xFFFF ^ ones_complement_sum(header)
        return self.ethernet(ETH_P_IP) + header[:10] + struct.pack("!H", checksum) + header[12:] + payload

    def ipv6(self, payload: bytes, ecn: int, *, next_header: int = 17) -> bytes:
        """An Ethernet frame from fd00::1 to fd00::2."""
        start = struct.pack("!IHBB", 6 << 28 | ecn << 20, len(payload), next_header, 64)
        addresses = (socket.inet_pton(socket.AF_INET6, address) for address in ("fd00::1", "fd00::2"))
        return self.ethernet(ETH_P_IPV6) + start + b"".join(addresses) + payload


@dataclass
class Cable:
    """tx and rx, its two ends; `bpf` loads programs under a run id that both namespaces carry."""

    tx: End
    rx: End
    bpf: Bpf

    @cached_property
    def sender(self) -> socket.socket:
        return self.tx.raw_socket()

    def send(self, frames: Iterable[bytes]) -> int:
        """Send them one by one from tx; returns how many its egress side refused (tail drop, early drop)."""
        refused = 0
        for frame in frames:
            try:
                self.sender.send(frame)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                refused += 1
        return refused

    @staticmethod
    def wait_until(read: Callable[[], Any], *, equals: Any, what: str) -> None:
        """Fail with the last value if it isn't there in time."""
        deadline = time.monotonic() + DEADLINE_S
        while (last := read()) != equals:
            assert time.monotonic() < deadline, f"{what}: still {last!r} after {DEADLINE_S:g} s, want {equals!r}"
            time.sleep(0.002)


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
    return done.stdout


def ones_complement_sum(data: bytes) -> int:
    """RFC 1071; 0xFFFF over a header whose checksum is right."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.fixture
def cable(run_id: str) -> Iterator[Cable]:
    """Two namespaces, one veth pair without IPv6 chatter; all of it is gone after the test."""
    tx = End(netns.name_of(run_id, "tx"), "port", 4101, mac=b"\x02\0\0\0\0\x01")
    rx = End(netns.name_of(run_id, "rx"), "nic", 4102, mac=b"\x02\0\0\0\0\x02")
    with ExitStack() as undo:
        for end, peer in ((tx, rx), (rx, tx)):
            netns.create(end.netns)
            undo.callback(netns.remove, end.netns)
            undo.callback(end.undo.close)
            end.peer_mac = peer.mac
            with netns.inside(end.netns):
                Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        near = ("link", "add", tx.ifname, "index", str(tx.ifindex), "mtu", str(MTU_BYTES), "numtxqueues", "1")
        far = ("peer", "name", rx.ifname, "index", str(rx.ifindex), "mtu", str(MTU_BYTES), "netns", rx.netns)
        tx.ip(*near, "type", "veth", *far)
        for end in (tx, rx):
            end.ip("link", "set", end.ifname, "address", end.mac.hex(":"), "up")
        yield Cable(tx, rx, undo.enter_context(Bpf(run_id)))
