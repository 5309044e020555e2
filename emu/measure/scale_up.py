"""Bandwidth and latency of a scale-up domain: one pair of GPUs, the pair furthest apart, and every pair at once.

Bandwidth: bulk messages cut into CHUNKS; a pair's rate is taken over the second half of them, so that neither latency nor the
NIC's start has a part in it; all pairs together are timed from the first packet to the last byte, as an all-to-all is.
Latency: every GPU writes to one other after the other and waits for the answer, as decode's small payloads do; nothing else
is on the links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from emu.fabric.fabric import Fabric
from emu.measure.metric import Check, Metric
from emu.measure.percentile import percentile
from emu.measure.transfers import Transferred, run_messages
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.topology.scale_up import ScaleUp

CHUNKS = 16
SHARED_WINDOWS = 2  # all pairs: what a GPU has in flight, in windows of one pair
MICROSECOND = 1000  # ns
Pair = tuple[int, int]


@dataclass(frozen=True)
class Bulk:
    """`size_bytes` from source to target of each pair; `last_hops` are the messages that arrive there, by pair and plane."""

    transferred: Transferred
    size_bytes: int
    last_hops: dict[Pair, list[list[int]]]

    def pair_gbytes(self, pair: Pair) -> float:
        """GB/s over the second half of the chunks of `pair`, of each plane by itself, added."""
        planes, half = self.last_hops[pair], CHUNKS // 2
        done = [[self.transferred.done_ns[index] for index in chunks] for chunks in planes]
        scale = self.transferred.fabric.scale
        half_bytes = self.size_bytes / len(planes) * half / CHUNKS
        return sum(half_bytes / scale.fabric_ns(ns[-1] - ns[-1 - half]) for ns in done)

    @property
    def gpu_gbytes(self) -> float:
        """GB/s of data from each source, from the first packet to the last byte."""
        sources = {source for source, _ in self.last_hops}
        return self.size_bytes * len(self.last_hops) / len(sources) / (1000 * self.transferred.completion_us)

    def ideal_gbytes(self, scale_up: ScaleUp) -> float:
        """What `gpu_gbytes` comes to if the port with the most to send is never idle: full packets, no ACKs, no latency."""
        fabric, uses = self.transferred.fabric, Counter()
        for pair in self.last_hops:
            for plane in range(scale_up.planes):
                uses.update(source for source, _ in scale_up.hops(*pair, plane))
        slowest = min(fabric.ports[port].rate_bps / count for port, count in uses.items()) * scale_up.planes
        targets_each = len(self.last_hops) / len({source for source, _ in self.last_hops})
        return targets_each * slowest / 8e9 * fabric.plan.topology.path_mtu_bytes / fabric.plan.frame_bytes


@dataclass(frozen=True)
class Latencies:
    """Fabric ns of a message, one way and with the answer, by (source, target), from release to arrival."""

    transferred: Transferred
    one_way_ns: dict[Pair, float]
    round_trip_ns: dict[Pair, float]

    def row(self) -> dict[str, object]:
        one_way = sorted(self.one_way_ns.values())
        return {
            "pair_ns": self.one_way_ns[0, 1], "one_way_p50_ns": percentile(one_way, 0.5), "one_way_max_ns": one_way[-1],
            "round_trip_max_ns": max(self.round_trip_ns.values()), "under_1us": one_way[-1] < MICROSECOND,
        }


@dataclass(frozen=True)
class Measured:
    """All of it for one domain: GPU 0 with GPU 1, GPU 0 with the last one, each with each other, and small messages."""

    scale_up: ScaleUp
    near: Bulk
    far: Bulk
    everybody: Bulk
    small: Latencies

    def row(self) -> dict[str, object]:
        """GB/s of data, beside what the arithmetic gives; fabric ns."""
        gpu_gbytes = self.scale_up.technology.rate_bps / 8e9
        near, far = (one.pair_gbytes(*one.last_hops) for one in (self.near, self.far))
        return {
            "gpu_GBps": gpu_gbytes, "pair_GBps": near, "pair_share": near / gpu_gbytes, "far_GBps": far,
            "all_GBps": self.everybody.gpu_gbytes, "all_share": self.everybody.gpu_gbytes / gpu_gbytes, **self.small.row(),
            "pair_ideal_GBps": self.near.ideal_gbytes(self.scale_up), "far_ideal_GBps": self.far.ideal_gbytes(self.scale_up),
            "all_ideal_GBps": self.everybody.ideal_gbytes(self.scale_up),
            "one_way_ideal_max_ns": max(self.scale_up.one_way_ns(*pair) for pair in self.everybody.last_hops),
        }

    def metrics(self) -> list[Metric]:
        """Of all pairs at once."""
        return self.everybody.transferred.metrics()

    def checks(self) -> list[Check]:
        parts = {"pair": self.near, "furthest pair": self.far, "all pairs": self.everybody, "small messages": self.small}
        checks = []
        for name, part in parts.items():
            lost = part.transferred.row()["dropped_packets"]
            credit = Check("dropped where credits would hold back", lost, 0, ok=not lost, unit="packets")
            checks += [replace(check, name=f"{check.name} [{name}]") for check in (credit, *part.transferred.checks())]
        return checks


def measure(fabric: Fabric, scale_up: ScaleUp, size_bytes: int, message_bytes: int, transport: Transport) -> Measured:
    """`size_bytes` from GPU to GPU for bandwidth, `message_bytes` for latency; the first domain only."""
    last = scale_up.domain_gpus - 1
    share = min(transport.window_packets, SHARED_WINDOWS * transport.window_packets // last)
    shared = replace(transport, window_packets=max(transport.ack_every, share))
    return Measured(
        scale_up,
        near=bulk(fabric, scale_up, [(0, 1)], size_bytes, transport),
        far=bulk(fabric, scale_up, [(0, last)], size_bytes, transport),
        everybody=bulk(fabric, scale_up, all_pairs(scale_up), size_bytes, shared),
        small=latencies(fabric, scale_up, message_bytes, transport),
    )


def bulk(fabric: Fabric, scale_up: ScaleUp, pairs: Sequence[Pair], size_bytes: int, transport: Transport) -> Bulk:
    """Run them all at once, a relayed chunk as soon as it is at the relay."""
    messages: list[Message] = []
    last_hops = {pair: _chunks(messages, scale_up, pair, size_bytes) for pair in pairs}
    return Bulk(run_messages(fabric, messages, transport), size_bytes, last_hops)


def all_pairs(scale_up: ScaleUp) -> list[Pair]:
    """Of the first domain. Each source begins with its right neighbour, so that no target is everybody's first."""
    size = scale_up.domain_gpus
    return [(gpu, (gpu + step) % size) for step in range(1, size) for gpu in range(size)]


def latencies(fabric: Fabric, scale_up: ScaleUp, size_bytes: int, transport: Transport) -> Latencies:
    """Every GPU of the first domain with every other, one after the other: `size_bytes` there and as many back."""
    messages: list[Message] = []
    walks = {gpu: [*_walk(messages, scale_up, gpu, size_bytes)] for gpu in range(scale_up.domain_gpus)}
    transferred = run_messages(fabric, messages, transport)
    one_way, round_trip = {}, {}
    for source, walk in walks.items():
        for target, start, there, back in walk:
            begun, arrived, answered = (fabric.scale.fabric_ns(transferred.done_ns[index]) for index in (start, there, back))
            one_way[source, target], round_trip[source, target] = arrived - begun, answered - begun
    return Latencies(transferred, one_way, round_trip)


def _chunks(messages: list[Message], scale_up: ScaleUp, pair: Pair, size_bytes: int) -> list[list[int]]:
    """Append the chunks of a pair; the index of each one's last hop, by plane."""
    each = max(1, size_bytes // (CHUNKS * scale_up.planes))
    channel = 1 + pair[0] * scale_up.domain_gpus + pair[1]
    rounds = [
        [_send(messages, scale_up, pair, each, channel, (), plane) for plane in range(scale_up.planes)] for _ in range(CHUNKS)
    ]
    return [list(plane) for plane in zip(*rounds, strict=True)]


def _walk(messages: list[Message], scale_up: ScaleUp, source: int, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
    """Append a GPU's messages; yields (target, index after which it began, of the message there, of the answer).

    The first round trip only sets the clock: what waits for nothing begins when the NIC's first tick comes round.
    """
    others = [gpu for gpu in scale_up.domain(source) if gpu != source]
    after: tuple[int, ...] = ()
    for target in (others[0], *others):
        there = _send(messages, scale_up, (source, target), size_bytes, 1 + source, after)
        back = _send(messages, scale_up, (target, source), size_bytes, 1 + source, (there,))
        if after:
            yield target, after[0], there, back
        after = (back,)


def _send(
    messages: list[Message], scale_up: ScaleUp, pair: Pair, size_bytes: int, channel: int, after: tuple[int, ...], plane: int = 0
) -> int:
    """Append one message, hop by hop; returns the index of the last hop."""
    for source, target in scale_up.hops(*pair, plane):
        messages.append(Message(source=source, target=target, size_bytes=size_bytes, after=after, channel=channel))
        after = (len(messages) - 1,)
    return after[0]
