"""A fabric of four leaves, RDMA traffic on it under lb=ddc or another mode, and what came of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from emu.fabric.depth import DepthProbe
from emu.fabric.failure import LinkEvent, LinkEvents
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.fabric.queue import tbf_parent
from emu.measure.counters import PortCounters, difference, snapshot
from emu.nic.engine import Engine, Outcome
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.roce.psn import packets_of_message
from emu.scale import Scale
from emu.switch.ddc import Ddc
from emu.switch.ddc_counters import DdcCounters
from emu.switch.mode import Mode
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, us

PER_LEAF, LEAVES, SPINES = 4, 4, 4
NICS = PER_LEAF * LEAVES
MTU_BYTES, FRAME_BYTES = 4096, 4174
RATE_BPS, DILATION, LIMIT_S, CONVERGENCE_NS = gbps(400), 100, 20, us(20)
ECN = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.2)
DEEP, SHALLOW = QueueProfile(buffer_bytes=mib(16), ecn=ECN), QueueProfile(buffer_bytes=500_000, ecn=ECN)
TARGET = Port("leaf0", "down0")  # of nic(0, 0)


def make_fabric(elided: bool = True, profile: QueueProfile = DEEP, spines: int = SPINES) -> Fabric:
    """NICs 0 to 3 under leaf0, 4 to 7 under leaf1, and so on."""
    shape = SpineLeaf(servers=NICS, gpus_per_server=1, wiring="single", leaf_down=PER_LEAF, leaf_up=SPINES, spines=spines,
                      rate_bps=RATE_BPS, queue=profile)
    return Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=DILATION), elided=elided)


def permutation(size_bytes: int) -> list[Message]:
    return [Message(source=nic(at, 0), target=nic((at + PER_LEAF) % NICS, 0), size_bytes=size_bytes) for at in range(NICS)]


def incast(senders: int = 8, size_bytes: int = mib(1)) -> list[Message]:
    """From two other leaves, all to NIC 0."""
    return [Message(source=nic(PER_LEAF + at, 0), target=nic(0, 0), size_bytes=size_bytes) for at in range(senders)]


@dataclass
class Run:
    """What came of it; done_ns: fabric time. depth_bytes: samples of TARGET's queue."""

    messages: Sequence[Message]
    outcome: Outcome
    ends: dict
    done_ns: list[float]
    ports: dict[Port, PortCounters]
    cells: DdcCounters
    depth_bytes: list[int]

    def sum_of(self, field: str) -> int:
        """Of struct nic_qp."""
        return sum(getattr(qp, field) for qp in self.ends.values())

    def total(self, field: str) -> int:
        return sum(getattr(port, field) for port in self.ports.values())

    def assert_exact(self) -> None:
        """Every byte of every message was placed once, and where it belongs."""
        assert self.outcome.left == 0, f"{self.outcome.left} of {len(self.messages)} messages not complete after {LIMIT_S} s"
        packets = sum(packets_of_message(m.size_bytes, MTU_BYTES) for m in self.messages)
        wanted = sum(m.size_bytes for m in self.messages), packets, 0
        got = self.sum_of("placed_bytes"), self.sum_of("placed_packets"), self.sum_of("misplaced_packets")
        assert got == wanted, f"bytes, packets, misplaced: {got}, want {wanted}"


def run(
    mode: Mode | Ddc, messages: Sequence[Message], transport: Transport, *, elided: bool = True, profile: QueueProfile = DEEP,
    spines: int = SPINES, loss: str = "", slow_bps: int = RATE_BPS, failures: Sequence[LinkEvent] = (),
) -> Run:
    with ExitStack() as stack:
        fabric = stack.enter_context(make_fabric(elided, profile, spines))
        installed = stack.enter_context(mode.install(fabric))
        if loss:
            lose_cells(fabric, loss)
        fabric.limit_nic(TARGET, slow_bps)
        engine = stack.enter_context(Engine(fabric, messages, transport))
        events = stack.enter_context(LinkEvents(fabric, failures, convergence_ns=CONVERGENCE_NS, followers=[installed]))
        own = stack.enter_context(Netlink(fabric.netlink(TARGET.node).netns))
        probe = DepthProbe(own, fabric.ports[TARGET].ifindex, tbf_parent(fabric.settings[TARGET]))
        depths: list[int] = []

        def sample() -> None:
            events.tick()
            depths.append(probe.read())

        before = snapshot(fabric)
        outcome = engine.run(LIMIT_S, every_ns=us(2) * DILATION, sample=sample)
        done_ns = [(when - outcome.first_ns) / DILATION for when in engine.done_ns()]
        return Run(messages, outcome, engine.ends(), done_ns, difference(before, snapshot(fabric)), installed.counters(), depths)


def lose_cells(fabric: Fabric, how: str) -> None:
    """On the way down from spine0, whose RED gives its place to a netem."""
    for port in next(node for node in fabric.plan.nodes if node.name == "spine0").ports:
        netns = fabric.netlink("spine0").netns
        replace = ["tc", "-n", netns, "qdisc", "replace", "dev", port.port.ifname, "parent", "1:1"]
        done = subprocess.run([*replace, "netem", "limit", "100000", *how.split()], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
