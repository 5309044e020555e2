"""Messages through the offloaded NICs, measured whole: what arrived, how long it took, what the queues did, and the checks.

`run_messages` takes a snapshot at both ends of the run and, if asked, samples chosen queues and the bytes placed by each
connection while it goes on. Kernel times and rates; rows and metrics are in fabric time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

from emu.fabric import host
from emu.fabric.depth import DepthProbe
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.fabric.queue import tbf_parent
from emu.measure import conservation, fidelity
from emu.measure.counters import PortCounters, Snapshot, difference, snapshot
from emu.measure.metric import Check, Metric
from emu.nic.engine import Engine, Outcome
from emu.nic.message import Message, Messages, sent_and_received
from emu.nic.transport import Transport
from emu.topology.model import Link, Port

PATIENCE = 50  # times the ideal duration, and RTOS_MAX timeouts in a row, before a run counts as stuck
RTOS_MAX = 400
REAL_CLOCK_LIMIT_S = 120.0


@dataclass(frozen=True)
class Sample:
    """At `at_ns` (kernel, since the first packet): bytes in each watched queue, bytes placed by each connection."""

    at_ns: int
    depths: tuple[int, ...]
    placed: tuple[int, ...]


@dataclass(kw_only=True)
class Transferred:
    """A run of `messages`; `samples` are in the order of `watched` and of `connections` (source, target, channel).
    `made`: switch -> packets, what Fabric.made() has grown by."""

    fabric: Fabric
    messages: Messages
    transport: Transport
    outcome: Outcome
    ends: dict
    done_ns: list[int]
    strangers: int
    delta: Snapshot
    load: tuple[host.HostLoad, host.HostLoad]
    connections: Sequence[tuple[Port, Port, int]]
    watched: Sequence[Port] = ()
    samples: list[Sample] = field(default_factory=list)
    made: Mapping[str, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return self.messages.total_bytes

    @property
    def connection_bytes(self) -> list[int]:
        """What each connection has to carry, in the order of `connections`."""
        return list(self.messages.connection_bytes.values())

    @property
    def completion_us(self) -> float:
        """From the first packet sent to the last byte there, fabric time."""
        return self.fabric.scale.fabric_ns(self.outcome.elapsed_ns) / 1000

    def done_us(self, which: Iterable[int]) -> float:
        """From the first packet sent until the last of these messages was there, fabric time."""
        return self.fabric.scale.fabric_ns(max(self.done_ns[at] for at in which) - self.outcome.first_ns) / 1000

    def total(self, name: str) -> int:
        """One counter of struct nic_qp (nic.h) over all ends."""
        return sum(getattr(end, name) for end in self.ends.values())

    @cached_property
    def switch_ports(self) -> list[PortCounters]:
        return [self.delta[port.port] for node in self.fabric.plan.nodes if node.forwards for port in node.ports]

    def row(self) -> dict[str, object]:
        """One line of a table, keys as in the contract."""
        return {
            "completion_us": self.completion_us,
            "delivered_packets": self.total("placed_packets"),
            "delivered_bytes": self.total("placed_bytes"),
            "ecn_marked_packets": sum(port.marked_packets for port in self.switch_ports),
            "ce_delivered_packets": self.total("ce_packets"),
            "cnp_packets": self.total("cnps_sent"),
            "dropped_packets": sum(port.dropped_packets for port in self.delta.values()),
            "retransmitted_packets": self.total("resent_packets"),
            "reordered_ratio": self.total("reordered_packets") / max(1, self.total("placed_packets")),
            "packet_hops": sum(port.sent_packets for port in self.delta.values()),
        }

    def metrics(self) -> list[Metric]:
        units = {"completion_us": "us", "delivered_bytes": "bytes", "packet_hops": "packet-hops", "reordered_ratio": "share"}
        return [Metric(name, value, units.get(name, "packets")) for name, value in self.row().items()]

    def checks(self, dead: Collection[Link] = ()) -> list[Check]:
        """`dead`: cables that were made to fail, which may lose packets."""
        placed, misplaced = self.total("placed_bytes"), self.total("misplaced_packets")
        checks = [
            Check("messages not complete", self.outcome.left, 0, ok=not self.outcome.left, unit="messages"),
            Check("bytes not placed exactly once", abs(self.size_bytes - placed), 0, ok=placed == self.size_bytes, unit="bytes"),
            Check("packets at a wrong address", misplaced, 0, ok=not misplaced, unit="packets"),
            Check("packets for no queue pair", self.strangers, 0, ok=not self.strangers, unit="packets"),
            *conservation.checks(self.fabric.plan, self.delta, dead, self.made),
            fidelity.knobs_check(self.fabric),
            fidelity.backlog_check(*self.load),
        ]
        return checks if self.fabric.scale.exact else [*checks, fidelity.packet_work_check(*self.load)]

    def warnings(self) -> list[str]:
        """What a reader of the figures has to know of this kernel."""
        unpaced = self.transport.cc == "dcqcn" and not self.fabric.paced
        return ["this kernel has no sch_fq: DCQCN's rate is held by the window, not by gaps between packets"] if unpaced else []


def run_messages(
    fabric: Fabric, messages: Iterable[Message], transport: Transport, *, watch: Sequence[Port] = (), every_us: float = 0,
    also: Callable[[], None] = lambda: None,
) -> Transferred:
    """Run them all. Every `every_us` of fabric time (0: never) the depth of the queues in `watch` is sampled, after `also`()."""
    load, before, made, messages = host.load(), snapshot(fabric), fabric.made(), Messages.of(messages)
    samples: list[Sample] = []
    with ExitStack() as closing:
        depths = [_probe(closing, fabric, port) for port in watch]
        engine = closing.enter_context(Engine(fabric, messages, transport))

        def sample() -> None:
            also()
            at_ns = time.monotonic_ns()  # as BPF counts
            found = tuple(depth.read() for depth in depths)
            samples.append(Sample(at_ns, found, engine.placed_bytes()))

        every_ns = fabric.scale.kernel_ns(every_us * 1000)
        outcome = engine.run(limit_s(fabric, messages, transport), every_ns=every_ns, sample=sample)
        ends, done, strangers, connections = engine.ends(), engine.done_ns(), engine.progress().strangers, engine.connections()
    return Transferred(
        fabric=fabric, messages=messages, transport=transport, outcome=outcome, ends=ends, done_ns=done, strangers=strangers,
        delta=difference(before, snapshot(fabric)), load=(load, host.load()), watched=watch, connections=connections,
        made={switch: count - made[switch] for switch, count in fabric.made().items()},
        samples=[Sample(one.at_ns - outcome.first_ns, one.depths, one.placed) for one in samples],
    )


def limit_s(fabric: Fabric, messages: Messages, transport: Transport) -> float:
    """Kernel seconds after which a run is stuck: many times what the busiest NIC needs at line rate, and many timeouts."""
    sent, received = sent_and_received(messages)
    busiest_bytes = max(*sent.values(), *received.values())
    ideal_ns = busiest_bytes * 8e9 / min(port.rate_bps for port in fabric.plan.ports.values())
    limit = fabric.scale.kernel_ns(PATIENCE * ideal_ns + RTOS_MAX * transport.rto_ns) / 1e9
    return limit if fabric.scale.exact else max(limit, REAL_CLOCK_LIMIT_S)


def _probe(closing: ExitStack, fabric: Fabric, port: Port) -> DepthProbe:
    netlink = closing.enter_context(Netlink(fabric.netlink(port.node).netns))
    return DepthProbe(netlink, fabric.ports[port].ifindex, tbf_parent(fabric.settings[port]))
