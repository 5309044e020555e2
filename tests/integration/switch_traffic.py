"""A non-blocking fabric of four leaves, RDMA traffic between them under one load-balancing mode, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from emu.fabric.failure import LinkEvent, LinkEvents
from emu.fabric.fabric import Fabric
from emu.measure.counters import PortCounters, difference, snapshot
from emu.measure.uplinks import Spread
from emu.nic.engine import Engine, Outcome
from emu.nic.transport import Transport
from emu.nic.work_request import Message, Work, arrange
from emu.scale import Scale
from emu.switch.flow_table import FlowPath
from emu.switch.mode import Installed, Mode, Picks
from emu.topology.model import Port, Topology, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, us

PER_LEAF, LEAVES = 4, 4
NICS = PER_LEAF * LEAVES
LIMIT_S = 60
DILATION = 100


@dataclass
class Run:
    """`outcome`, `done_ns`: kernel time. `failed_ns`: when each step of a failure was done."""

    outcome: Outcome
    ends: dict
    done_ns: list[int]
    ports: dict[Port, PortCounters]
    picks: Picks
    failed_ns: list[int]

    @property
    def elapsed_us(self) -> float:
        """Fabric time."""
        return self.outcome.elapsed_ns / DILATION / 1000

    def sum_of(self, field: str) -> int:
        """Of struct nic_qp, over all ends."""
        return sum(getattr(qp, field) for qp in self.ends.values())

    def uplinks(self, node: str) -> dict[Port, int]:
        """Bytes of each, by its queue's own account."""
        return {port: counters.sent_bytes for port, counters in self.ports.items()
                if port.node == node and port.ifname.startswith("up")}

    def imbalance(self) -> float:
        """Busiest over mean uplink, of the worst leaf."""
        leaves = sorted({port.node for port in self.ports if port.node.startswith("leaf")})
        return max(Spread(list(self.uplinks(leaf).values())).max_over_mean for leaf in leaves)


def non_blocking(uplinks: int = PER_LEAF) -> Topology:
    """Four leaves of four NICs, a spine for each uplink."""
    shape = SpineLeaf(servers=NICS, gpus_per_server=1, wiring="single", leaf_down=PER_LEAF, leaf_up=uplinks, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=mib(16)))
    return shape.topology()


def permutation(size_bytes: int = mib(1), channels: int = 1) -> list[Message]:
    """Every NIC to the one of the next leaf at the same place."""
    return [
        Message(source=nic(server, 0), target=nic((server + PER_LEAF) % NICS, 0), size_bytes=size_bytes, channel=channel)
        for channel in range(channels) for server in range(NICS)
    ]


def all_to_all(size_bytes: int = 100_000) -> list[Message]:
    """Every NIC to every other, nearest first."""
    return [
        Message(source=nic(server, 0), target=nic((server + step) % NICS, 0), size_bytes=size_bytes)
        for step in range(1, NICS) for server in range(NICS)
    ]


def paths(work: Work, uplink: Callable[[Port, Port], Port]) -> tuple[FlowPath, ...]:
    """One for each direction of each connection; `uplink` chooses by source and target."""
    return tuple(
        FlowPath(source=end.nic, target=end.peer, source_qp=end.qpn, target_qp=work.peer_of(end).qpn,
                 uplink=uplink(end.nic, end.peer))
        for end in work.ends.values()
    )


def rotated_paths(messages: Sequence[Message]) -> tuple[FlowPath, ...]:
    """NIC p of a leaf has uplink p to itself: no two flows of the permutation meet, up or down."""
    def own(source: Port, _target: Port) -> Port:
        leaf, place = divmod(int(source.node.removeprefix("srv")), PER_LEAF)
        return Port(f"leaf{leaf}", f"up{place}")

    return paths(arrange(messages), own)


def run(
    mode: Mode, messages: Sequence[Message], *, transport: str = "sr", hash_seeds: str = "per_switch",
    topology: Topology | None = None, failures: Sequence[LinkEvent] = (), convergence_ns: int = us(20), followed: bool = True,
    rto_ns: int = us(500), watch: Callable[[Fabric, Installed], None] | None = None,
) -> Run:
    """Run all messages under `mode`. `failures` happen meanwhile; not `followed`: the mode isn't told of them."""
    plan = make_plan(topology or non_blocking(), seed=1, hash_seeds=hash_seeds)
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(plan, Scale(dilation=DILATION), elided=True))
        lb = stack.enter_context(mode.install(fabric))
        engine = stack.enter_context(Engine(fabric, messages, Transport(transport=transport, rto_ns=rto_ns)))
        events = LinkEvents(fabric, failures, convergence_ns=convergence_ns, followers=[lb] if followed else [])
        stack.enter_context(events)

        def sample() -> None:
            events.tick()
            if watch:
                watch(fabric, lb)

        before = snapshot(fabric)
        outcome = engine.run(LIMIT_S, every_ns=us(1) * DILATION if failures or watch else 0, sample=sample)
        return Run(outcome, engine.ends(), engine.done_ns(), difference(before, snapshot(fabric)), lb.counters(), events.done_ns)
