"""Promises of the NIC's counter: every kind of packet is counted exactly, and RoCE ends at the NIC."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from emu.fabric import netns
from emu.roce.opcodes import Opcode

pytestmark = pytest.mark.needs_root

NOT_ECT, ECT_1, ECT_0, CE = range(4)
FIELDS = ("ce_packets", "ect_packets", "not_ect_packets", "roce_data_packets", "cnp_packets", "other_packets")
PAYLOAD_BYTES = 100


def udp(dport: int, body: bytes) -> bytes:
    return struct.pack("!HHHH", 49152, dport, 8 + len(body), 0) + body


def roce(opcode: int, payload_bytes: int = PAYLOAD_BYTES) -> bytes:
    return udp(4791, struct.pack("!BBHII", opcode, 0, 0xFFFF, 18, 5) + bytes(payload_bytes))


def carries_data(opcode: Opcode) -> bool:
    return any(word in opcode.name for word in ("SEND", "RDMA_WRITE", "READ_RESPONSE"))


@pytest.fixture
def counted(cable):
    """Sends frames to a NIC with the counter on it and returns the NIC's counters when all are in."""
    counter = cable.bpf.load("counter")
    cable.rx.attach(counter.program_fd("counter"), "ingress")
    counters = counter.map("nic_counters")

    def packets():
        found = counters.read(cable.rx.ifindex)
        return found.packets if found else 0

    def send(*frames: bytes):
        before = packets()
        cable.send(frames)
        cable.wait_until(packets, equals=before + len(frames), what="packets counted")
        return counters.read(cable.rx.ifindex)

    return send


def kinds(end):
    """name, frame, and the counters beside packets and bytes that it raises by one."""
    write = Opcode.RC_RDMA_WRITE_MIDDLE
    return [
        ("data, Not-ECT", end.ipv4(roce(write), NOT_ECT), {"not_ect_packets", "roce_data_packets"}),
        ("data, ECT(0)", end.ipv4(roce(write), ECT_0), {"ect_packets", "roce_data_packets"}),
        ("data, ECT(1)", end.ipv4(roce(write), ECT_1), {"ect_packets", "roce_data_packets"}),
        ("data, CE", end.ipv4(roce(write), CE), {"ce_packets", "roce_data_packets"}),
        ("data, jumbo", end.ipv4(roce(write, 4096), CE), {"ce_packets", "roce_data_packets"}),
        ("data, IPv6, ECT(0)", end.ipv6(roce(write), ECT_0), {"ect_packets", "roce_data_packets"}),
        ("data, IPv6, CE, jumbo", end.ipv6(roce(write, 4096), CE), {"ce_packets", "roce_data_packets"}),
        ("data, IP options", end.ipv4(roce(write), CE, options=b"\x01" * 8), {"ce_packets", "roce_data_packets"}),
        ("data, DSCP 26", end.ipv4(roce(write), 26 << 2 | CE), {"ce_packets", "roce_data_packets"}),
        ("CNP", end.ipv4(roce(Opcode.CNP, 16), ECT_0), {"ect_packets", "cnp_packets"}),
        ("CNP, IPv6", end.ipv6(roce(Opcode.CNP, 16), NOT_ECT), {"not_ect_packets", "cnp_packets"}),
        ("ACK", end.ipv4(roce(Opcode.RC_ACKNOWLEDGE, 4), NOT_ECT), {"not_ect_packets", "other_packets"}),
        ("other UDP port", end.ipv4(udp(4792, roce(write)), ECT_0), {"ect_packets", "other_packets"}),
        ("RoCE port as source", end.ipv4(struct.pack("!HHHH", 4791, 9, 18, 0) + bytes(10), CE),
         {"ce_packets", "other_packets"}),
        ("TCP to port 4791", end.ipv4(roce(write), CE, protocol=6), {"ce_packets", "other_packets"}),
        ("later fragment", end.ipv4(roce(write), CE, fragment=100), {"ce_packets", "other_packets"}),
        ("cut off before the opcode", end.ipv4(udp(4791, b""), ECT_0), {"ect_packets", "other_packets"}),
        ("ARP", end.ethernet(0x0806) + bytes(28), {"other_packets"}),
    ]


def test_every_kind_of_packet_raises_its_own_counters_and_no_other(cable, counted):
    counted(cable.tx.ethernet(0x0806) + bytes(28))
    for times, (name, frame, raised) in enumerate(kinds(cable.tx), start=1):
        before = counted(frame)
        after = counted(*[frame] * times)
        got = {field: getattr(after, field) - getattr(before, field) for field in FIELDS}
        assert got == {field: times * (field in raised) for field in FIELDS}, f"{name}, {times} times"
        assert after.bytes - before.bytes == times * len(frame), f"{name}: bytes"
        data = times * len(frame) * ("roce_data_packets" in raised)
        assert after.roce_data_bytes - before.roce_data_bytes == data, f"{name}: data bytes"


def test_data_is_exactly_what_the_opcode_says_carries_payload(cable, counted):
    counted(cable.tx.ethernet(0x0806) + bytes(28))
    for opcode in Opcode:
        before = counted()
        after = counted(cable.tx.ipv4(roce(opcode), ECT_0))
        got = (after.roce_data_packets - before.roce_data_packets, after.cnp_packets - before.cnp_packets)
        assert got == (int(carries_data(opcode)), int(opcode is Opcode.CNP)), f"{opcode.name}: (data, CNP) = {got}"


def test_ten_thousand_packets_are_counted_to_the_last(cable, counted):
    frame = cable.tx.ipv4(roce(Opcode.RC_SEND_MIDDLE), CE)
    after = counted(*[frame] * 10_000)
    got = (after.packets, after.ce_packets, after.roce_data_packets, after.bytes)
    assert got == (10_000, 10_000, 10_000, 10_000 * len(frame))


def test_first_and_last_arrival_are_those_of_data_packets(cable, counted):
    data, ack = (cable.tx.ipv4(roce(op), ECT_0) for op in (Opcode.RC_SEND_ONLY, Opcode.RC_ACKNOWLEDGE))
    assert counted(ack)[-2:] == (0, 0), "an ACK has set the arrival times of data"
    t0 = time.monotonic_ns()
    first = counted(data)
    t1 = time.monotonic_ns()
    last = counted(data, ack)
    t2 = time.monotonic_ns()
    assert t0 < first.first_ns == first.last_ns < t1, f"{t0} {first} {t1}"
    assert (first.first_ns, True) == (last.first_ns, t1 < last.last_ns < t2), f"{t1} {last} {t2}"
    assert counted(ack).last_ns == last.last_ns, "an ACK has moved the last arrival of data"


@pytest.mark.parametrize("pass_roce", [0, 1])
def test_roce_reaches_the_hosts_stack_only_if_asked(cable, counted, pass_roce):
    cable.rx.ip("addr", "add", "10.0.0.2/24", "dev", cable.rx.ifname)
    if pass_roce:
        cable.bpf.load("counter").map("nic_config").update(cable.rx.ifindex, pass_roce=1)
    with netns.inside(cable.rx.netns):
        listeners = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    try:
        for listener, port in zip(listeners, (4791, 4792), strict=True):
            listener.bind(("10.0.0.2", port))
            listener.settimeout(10)
        counted(cable.tx.ipv4(roce(Opcode.RC_SEND_ONLY), ECT_0), cable.tx.ipv4(udp(4792, b"after it"), ECT_0))
        assert listeners[1].recv(100) == b"after it"  # packets of one cable stay in order, so RoCE was before
        listeners[0].setblocking(False)
        try:
            arrived = len(listeners[0].recv(2000)) > 0
        except BlockingIOError:
            arrived = False
        assert arrived is bool(pass_roce)
    finally:
        for listener in listeners:
            listener.close()
