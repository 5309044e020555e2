"""Promises of the BPF marker: at a queue held at depth q it marks with P(q), with the draws its seed decides.

The queue is a TBF that sends one frame at once and the next a minute and a half later, so a burst builds it frame by
frame and what each frame finds is known; it stays full while tail drop refuses the rest. Raising the rate lets it go.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from itertools import islice

import pytest

from emu.bpf import marker

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_bpf_marker]

NOT_ECT, ECT_1, ECT_0, CE = range(4)
FRAME_BYTES = 1000
HELD = "80bit"  # 10 bytes/s
SEED = 20_240_601
BANDS_SIGMA = 4


@dataclass
class Port:
    """The cable's tx end as a switch port with the marker on it, and the NIC's counter at the other end."""

    cable: object
    loaded: object
    nic: object

    @property
    def counters(self):
        return self.loaded.map("port_counters").read(self.cable.tx.ifindex)

    @property
    def chosen(self):
        return self.loaded.map("port_depth").read(self.cable.tx.ifindex).chosen

    @property
    def seen(self):
        return self.loaded.map("port_depth").read(self.cable.tx.ifindex).seen

    def set_law(self, kmin_bytes, kmax_bytes, pmax=1.0, seed=SEED):
        law = {"kmin_bytes": kmin_bytes, "kmax_bytes": kmax_bytes, "pmax": pmax, "seed": seed}
        marker.set_port(self.loaded, self.cable.tx.ifindex, **law, bucket_bytes=FRAME_BYTES)

    def set_queue(self, limit_bytes, rate=HELD, verb="change", frame_bytes=FRAME_BYTES):
        shape = ("rate", rate, "burst", str(frame_bytes + 50), "limit", str(limit_bytes))
        self.cable.tx.tc("qdisc", verb, "dev", self.cable.tx.ifname, "root", "handle", "1:", "tbf", *shape)

    def release(self, expected, frame_bytes=FRAME_BYTES):
        """Let the queue go with a frame that isn't IP; returns when `expected` packets and it are at the NIC."""
        self.set_queue(1 << 20, rate="1gbit", frame_bytes=frame_bytes)
        self.cable.send([self.cable.tx.ethernet(0x88B5) + bytes(50)])
        self.cable.wait_until(lambda: self.delivered.packets, equals=expected + 1, what="packets at the NIC")

    @property
    def tail_dropped(self):
        """Packets that the TBF itself has refused."""
        shown = json.loads(self.cable.tx.tc("-s", "-j", "qdisc", "show", "dev", self.cable.tx.ifname))
        return next(qdisc["drops"] for qdisc in shown if qdisc["kind"] == "tbf")

    @property
    def delivered(self):
        return self.nic.read(self.cable.rx.ifindex)


@pytest.fixture
def port(cable):
    loaded, counter = cable.bpf.load("marker"), cable.bpf.load("counter")
    cable.tx.attach(loaded.program_fd("marker"), "egress")
    cable.rx.attach(counter.program_fd("counter"), "ingress")
    return Port(cable, loaded, counter.map("nic_counters"))


def frame(end, ecn, version=4, frame_bytes=FRAME_BYTES):
    """A UDP datagram whose frame has exactly `frame_bytes`; it is not RoCE, so nothing consumes it."""
    udp_bytes = frame_bytes - 14 - (20 if version == 4 else 40)
    udp = struct.pack("!HHHH", 1, 9, udp_bytes, 0) + bytes(udp_bytes - 8)
    return end.ipv4(udp, ecn) if version == 4 else end.ipv6(udp, ecn)


def splitmix64(seed):
    """32-bit draws as the marker is to make them, written from the paper's definition (OOPSLA 2014, figure 14 ff.)."""
    mask = (1 << 64) - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = ((z ^ (z >> shift)) * factor) & mask
        yield (z ^ (z >> 31)) >> 32


def receive(raw, count):
    """The next `count` IP frames on a capture socket."""
    frames = []
    while len(frames) < count:
        data = raw.recv(65536)
        if data[12:14] in (b"\x08\x00", b"\x86\xdd"):
            frames.append(data)
    return frames


def ecn_of(data):
    return data[15] & 3 if data[12:14] == b"\x08\x00" else data[15] >> 4 & 3


def as_marked(end, data):
    """What `data` must be after marking: CE, IPv4 checksum right, every other byte as it was."""
    if data[12:14] == b"\x86\xdd":
        return data[:15] + bytes([data[15] | CE << 4]) + data[16:]
    return end.ipv4(data[34:], data[15] | CE)


@pytest.mark.parametrize("ecn", [NOT_ECT, ECT_1, ECT_0])
def test_below_kmin_not_one_of_many_is_marked_or_dropped(port, ecn):
    n = 200
    port.set_queue(1 << 20, verb="add")
    port.set_law(kmin_bytes=(n - 2) * FRAME_BYTES + 1, kmax_bytes=n * FRAME_BYTES)
    assert port.cable.send([frame(port.cable.tx, ecn)] * n) == 0
    assert port.counters.depth_max_bytes == (n - 2) * FRAME_BYTES  # one byte below kmin
    port.release(n)
    got = port.counters
    figures = (got.marked_packets, got.early_dropped_packets, port.delivered.ce_packets)
    assert (got.packets, figures) == (n, (0, 0, 0)), f"marked, dropped, CE delivered of {n}: {figures}"
    port.cable.send([frame(port.cable.tx, ecn)])  # finds an empty queue
    assert (port.counters.packets, port.counters.depth_max_bytes) == (n + 1, got.depth_max_bytes)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("frame_bytes", [128, FRAME_BYTES, 4170])
@pytest.mark.parametrize("ecn", [ECT_1, ECT_0, CE])
def test_from_kmax_on_every_packet_leaves_as_ce_and_only_its_ecn_has_changed(port, version, frame_bytes, ecn):
    n, k = 60, 10
    port.set_queue(1 << 20, verb="add", frame_bytes=frame_bytes)
    port.set_law(kmin_bytes=k * frame_bytes, kmax_bytes=k * frame_bytes)
    capture = port.cable.rx.raw_socket()
    sent = frame(port.cable.tx, ecn, version, frame_bytes)
    assert port.cable.send([sent] * n) == 0
    port.release(n, frame_bytes)
    got = receive(capture, n)
    # the first leaves at once, the second finds nothing, number k + 2 finds k frames
    assert got == [sent] * (k + 1) + [as_marked(port.cable.tx, sent)] * (n - k - 1)
    counters = port.counters
    remarked = n - k - 1 if ecn == CE else 0
    assert (counters.marked_packets, counters.remarked_packets) == (n - k - 1, remarked)
    assert counters.depth_max_bytes == (n - 2) * frame_bytes


@pytest.mark.parametrize("version", [4, 6])
def test_not_ect_is_dropped_where_ect_would_be_marked(port, version):
    n, k = 60, 10
    port.set_queue(1 << 20, verb="add")
    port.set_law(kmin_bytes=k * FRAME_BYTES, kmax_bytes=k * FRAME_BYTES)
    refused = port.cable.send([frame(port.cable.tx, NOT_ECT, version)] * n)
    port.release(k + 1)
    counters = port.counters
    assert (refused, counters.early_dropped_packets, counters.marked_packets) == (n - k - 1, n - k - 1, 0)
    assert (port.delivered.not_ect_packets, port.delivered.ce_packets) == (k + 1, 0)


@pytest.mark.parametrize("ecn", [ECT_0, NOT_ECT])
def test_at_a_held_depth_the_share_marked_follows_the_law(port, ecn):
    kmin, kmax, pmax, n = 10, 40, 0.6, 4000
    depths = [9, 10, 11, 15, 25, 33, 39, 40, 45]
    port.set_queue(depths[0] * FRAME_BYTES, verb="add")
    port.set_law(kmin * FRAME_BYTES, kmax * FRAME_BYTES, pmax)
    filler, probing = frame(port.cable.tx, ECT_0), frame(port.cable.tx, ecn)
    for depth in depths:
        port.set_queue(depth * FRAME_BYTES)  # which lets one frame go
        port.cable.send([filler] * (depth + 2))
        seen, chosen = port.seen[depth], port.chosen[depth]
        port.cable.send([probing] * n)
        tried, took = port.seen[depth] - seen, port.chosen[depth] - chosen
        p = 0.0 if depth < kmin else 1.0 if depth >= kmax else pmax * (depth - kmin) / (kmax - kmin)
        band = BANDS_SIGMA * math.sqrt(n * p * (1 - p))
        assert tried == n, f"the queue was not held at {depth} frames: {tried} of {n} found it so"
        assert abs(took - n * p) <= band, f"depth {depth}: {took} of {n} chosen, want {n * p:.0f} ± {band:.0f}"


def test_the_seed_decides_every_draw(port):
    kmin, kmax, pmax, depth, n = 10, 40, 0.5, 25, 3000
    p = int(pmax * 2**32) * (depth - kmin) // (kmax - kmin)
    port.set_queue(depth * FRAME_BYTES, verb="add")
    ect = frame(port.cable.tx, ECT_0)
    port.set_law(0, 1 << 30)
    port.cable.send([ect] * (depth + 2))
    results = []
    for seed in (1, 2, 2**64 - 1, 1):
        port.set_law(kmin * FRAME_BYTES, kmax * FRAME_BYTES, pmax, seed)
        port.cable.send([ect] * n)
        results.append(port.chosen[depth])
        assert results[-1] == sum(draw < p for draw in islice(splitmix64(seed), n)), f"seed {seed}"
    assert results[0] == results[3] and len(set(results)) == 3, f"chosen for seeds 1, 2, 2^64-1, 1: {results}"


def test_draws_are_independent_of_each_other(port):
    """sch_red spaces its marks; a switch's coin has no memory: after a mark the next is as likely as ever."""
    kmin, kmax, pmax, depth, n = 0, 40, 0.5, 20, 4000
    p = pmax * depth / kmax
    port.set_queue(depth * FRAME_BYTES, verb="add")
    port.set_law(1 << 30, 1 << 30)
    ect = frame(port.cable.tx, ECT_0)
    port.cable.send([ect] * (depth + 2))
    port.set_law(kmin, kmax * FRAME_BYTES, pmax)
    marks = []
    for _ in range(n):
        before = port.counters.marked_packets
        port.cable.send([ect])
        marks.append(port.counters.marked_packets - before)
    pairs = sum(a and b for a, b in zip(marks, marks[1:], strict=False))
    band = BANDS_SIGMA * math.sqrt(n) * p
    assert abs(pairs - n * p * p) <= band, f"{pairs} pairs of marks in a row, want {n * p * p:.0f} ± {band:.0f}"


def test_marker_queue_and_nic_agree_to_the_packet(port):
    """Arrived = delivered + early drops + tail drops; CE delivered = CE arrived + newly marked, less the tail drops."""
    limit = 30
    port.set_queue(limit * FRAME_BYTES, verb="add")
    port.set_law(5 * FRAME_BYTES, 25 * FRAME_BYTES, pmax=0.5)
    capture = port.cable.rx.raw_socket()
    mix = [frame(port.cable.tx, ecn, version) for version in (4, 6) for ecn in (NOT_ECT, ECT_1, ECT_0, CE)]
    arp = port.cable.tx.ethernet(0x0806) + bytes(28)
    refused = port.cable.send([arp] + mix * 10)
    counters = port.counters
    tail_dropped = refused - counters.early_dropped_packets
    queued = 80 - refused
    assert tail_dropped == port.tail_dropped, f"refused but not early: {tail_dropped}, TBF: {port.tail_dropped}"
    assert (counters.packets, counters.other_packets) == (80, 1)
    assert (counters.not_ect_packets, counters.ect_packets, counters.ce_packets) == (20, 40, 20)
    assert counters.bytes == 80 * FRAME_BYTES and sum(port.seen) == 80
    assert tail_dropped > 0 and counters.early_dropped_packets > 0, "the test must see both kinds of drop"
    assert sum(port.chosen) == counters.marked_packets + counters.early_dropped_packets
    port.release(queued + 1)
    ce = sum(ecn_of(data) == CE for data in receive(capture, queued))
    assert port.delivered.ce_packets == ce, f"counted {port.delivered.ce_packets} CE, captured {ce}"
    marked_ce = counters.ce_packets + counters.marked_packets - counters.remarked_packets
    assert marked_ce - tail_dropped <= ce <= marked_ce, f"{ce} CE delivered of {marked_ce}, {tail_dropped} tail-dropped"


def test_one_program_keeps_ports_of_different_namespaces_apart(port):
    """The other end of the cable has the same program, no settings, and is left alone."""
    other = port.cable.rx
    port.set_queue(1 << 20, verb="add")
    port.set_law(0, 0)
    other.tc("qdisc", "add", "dev", other.ifname, "root", "tbf", "rate", "1gbit", "burst", "9000", "limit", "100000")
    other.tc("qdisc", "del", "dev", other.ifname, "clsact")
    other.attach(port.loaded.program_fd("marker"), "egress")
    here, there = port.cable.tx.raw_socket(), other.raw_socket()
    there.send(frame(port.cable.tx, ECT_0))
    port.cable.send([frame(port.cable.tx, ECT_0)])
    assert [ecn_of(receive(there, 1)[0]), ecn_of(receive(here, 1)[0])] == [CE, ECT_0]
    assert set(port.loaded.map("port_counters").read_all()) == {port.cable.tx.ifindex}
