"""A real buffer over the fabric in packets that each carry their own address: is it whole at the other end, how far out of
order did it come, and what would a NIC have had to hold that delivers in order?

    sent = send_buffer(fabric, sender, receiver, data)          # as a crafted NIC sends, open loop
    placed = Placed(sent, frames_in_order_of_arrival)

A packet waits for one on a slower path no longer than the paths' delays differ; what its link carries in that time bounds
the buffer, and is what reordering costs in memory where the address isn't in each packet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from emu.errors import FabricError
from emu.fabric import host
from emu.fabric.fabric import Fabric
from emu.measure import conservation, fidelity
from emu.measure.balance import uplinks_of
from emu.measure.counters import Snapshot, difference, snapshot
from emu.measure.metric import Check, Metric
from emu.measure.reorder import Reordering, reordering
from emu.measure.uplinks import Spread
from emu.nic.crafted import Injection, run_open_loop
from emu.nic.incast import flow_between
from emu.nic.receiver import Received, Receivers
from emu.roce import place
from emu.roce.wire import RETH, parse
from emu.topology.model import Port
from emu.topology.plan import Plan

QPN = 0x11
BASE_VA = 0x7F00_0000_0000  # where a process's large buffers lie
SAMPLE_NS = 1_000_000


@dataclass(frozen=True)
class Sent:
    """What went out: the buffer, the fabric's counters over the run, the receiver's own account."""

    fabric: Fabric
    sender: Port
    receiver: Port
    data: bytes
    delta: Snapshot
    load: tuple[host.HostLoad, host.HostLoad]
    received: Received
    start_ns: int


def send_buffer(
    fabric: Fabric, sender: Port, receiver: Port, data: bytes, on_progress: Callable[[int], None] = lambda _packets: None
) -> Sent:
    """Send `data` once at line rate as WRITE packets made with Scapy; returns when every queue is empty again."""
    from emu.roce.packets import write_frames  # Scapy takes a second to import

    flow = flow_between(fabric.ports[sender], fabric.ports[receiver], QPN)
    frames = write_frames(flow, va=BASE_VA, payload=data, path_mtu=fabric.plan.topology.path_mtu_bytes)
    receivers = Receivers(fabric, [receiver])
    queues = [port.port for node in fabric.plan.nodes if node.forwards for port in node.ports]
    load, before, start_ns = host.load(), snapshot(fabric), time.monotonic_ns()
    run_open_loop(fabric, [Injection(nic=sender, frames=frames, count=len(frames))], queues, SAMPLE_NS, on_progress)
    delta = difference(before, snapshot(fabric))
    return Sent(fabric, sender, receiver, data, delta, (load, host.load()), receivers.read()[receiver], start_ns)


def delays_ns(plan: Plan, sender: Port, receiver: Port) -> list[int]:
    """Propagation over each uplink of the sender's leaf and the spine behind it, down to the receiver's leaf; fabric time."""
    source_leaf, target_leaf = (plan.ports[nic].peer.node for nic in (sender, receiver))
    down_ns = {port.port.node: port.delay_ns for port in plan.ports.values() if port.peer.node == target_leaf}
    uplinks = [plan.ports[port] for port in uplinks_of(plan)[source_leaf]]
    return [uplink.delay_ns + down_ns[uplink.peer.node] for uplink in uplinks]


class Placed:
    """`frames` as they came, each put where its own address says."""

    def __init__(self, sent: Sent, frames: Sequence[bytes]) -> None:
        self.sent, self.plan, self.frames = sent, sent.fabric.plan, frames
        self.memory = place.Placement(len(sent.data), base_va=BASE_VA)
        for frame in frames:
            self.memory.accept(frame)

    @property
    def intact(self) -> bool:
        """The buffer, byte for byte."""
        return self.memory.buffer == self.sent.data

    @cached_property
    def order(self) -> Reordering:
        """By packet sequence number. FabricError if nothing came."""
        packets = [packet for packet in map(parse, self.frames) if packet]
        if not packets:
            raise FabricError(f"no RoCE packet from {self.sent.sender} came to {self.sent.receiver}")
        sizes = [len(packet.body) - RETH.size - packet.pad_bytes for packet in packets]
        return reordering([packet.psn for packet in packets], sizes)

    @property
    def spread(self) -> Spread:
        """Bytes on each uplink of the sender's leaf."""
        leaf = self.plan.ports[self.sent.sender].peer.node
        return Spread([self.sent.delta[port].sent_bytes for port in uplinks_of(self.plan)[leaf]])

    @property
    def skew_ns(self) -> int:
        """Longest less shortest path, fabric time."""
        delays = delays_ns(self.plan, self.sent.sender, self.sent.receiver)
        return max(delays) - min(delays)

    @property
    def completion_us(self) -> float:
        return self.sent.fabric.scale.fabric_ns(self.sent.received.last_ns - self.sent.start_ns) / 1000

    def row(self) -> dict[str, object]:
        """One line of a table, keys as in the contract."""
        skew_bytes = self.plan.ports[self.sent.sender].rate_bps * self.skew_ns // 8_000_000_000
        return {
            "delivered_packets": self.sent.received.packets,
            "delivered_bytes": self.sent.received.bytes,
            "dropped_packets": sum(port.dropped_packets for port in self.sent.delta.values()),
            "completion_us": self.completion_us,
            "data_intact": self.intact,
            "reordered_ratio": self.order.reordered_ratio,
            "reorder_extent_max": self.order.extent_max,
            "reassembly_buffer_packets": self.order.buffer_packets,
            "reassembly_buffer_bytes": self.order.buffer_bytes,
            "skew_ns": self.skew_ns,
            "skew_bytes": skew_bytes,
            "skew_packets": skew_bytes // self.plan.frame_bytes,
            "uplink_max_over_mean": self.spread.max_over_mean,
            "uplink_bytes": self.spread.uplink_bytes,
        }

    def metrics(self) -> list[Metric]:
        row, units = self.row(), {"delivered_bytes": "bytes", "completion_us": "us"}
        names = ("delivered_packets", "delivered_bytes", "dropped_packets", "completion_us")
        return [Metric("data_intact", self.intact, "", note="byte for byte"), *self.order.metrics(), *self.spread.metrics(),
                *(Metric(name, row[name], units.get(name, "packets")) for name in names)]

    def checks(self) -> list[Check]:
        """Whether to believe it: nothing lost unseen, and the capture saw each packet as it was sent."""
        sent, outcomes = self.sent, self.memory.outcomes
        missed = sent.received.packets - len(self.frames)
        strange = outcomes.total() - outcomes[place.Outcome.PLACED]
        note = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        checks = [
            Check("packets the capture missed", missed, 0, ok=not missed, unit="packets"),
            Check("packets not as they were sent", strange, 0, ok=not strange, unit="packets", note=note),
            *conservation.checks(self.plan, sent.delta),
            fidelity.knobs_check(sent.fabric),
            fidelity.backlog_check(*sent.load),
        ]
        return checks if sent.fabric.scale.exact else [*checks, fidelity.cpu_check(*sent.load)]
