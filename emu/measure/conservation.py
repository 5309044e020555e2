"""Nothing may vanish: every packet is delivered, dropped by a queue that says so, or still queued.

Three laws, each exact, each between counters that different parts of the kernel keep:
per queue   offered = sent + dropped + queued, where offered is what the switch received for this port
per link    what a queue sent = what the other end received
per switch  what all ports received, and programs made of it (a cell fabric), = what all queues were offered (no loss in
            forwarding: TTL, no route, backlog)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from emu.measure.counters import Snapshot
from emu.measure.metric import Check
from emu.topology.model import Link
from emu.topology.plan import Plan

SHOWN = 3
NOTHING: Mapping[str, int] = {}


def checks(plan: Plan, delta: Snapshot, dead: Collection[Link] = (), made: Mapping[str, int] = NOTHING) -> list[Check]:
    """The fidelity checks "packets lost on links" and "packets lost in switches"; the note names the places.

    What the `dead` cables, and the switches at their ends, have lost is no fault of the run: lost_at(). `made`: switch ->
    packets, what Fabric.made() has grown by.
    """
    alive, ends = [cable for cable in plan.topology.links if cable not in dead], _ends(dead)
    return [
        _check("packets lost on links", list(_losses_on(alive, delta))),
        _check("packets lost in switches", [loss for loss in switch_losses(plan, delta, made) if loss[0] not in ends]),
    ]


def lost_at(plan: Plan, delta: Snapshot, dead: Collection[Link], made: Mapping[str, int] = NOTHING) -> int:
    """Packets that disappeared on these cables and in the switches at their ends."""
    ends = _ends(dead)
    in_switches = sum(lost for switch, lost in switch_losses(plan, delta, made) if switch in ends)
    return in_switches + sum(lost for _, lost in _losses_on(dead, delta))


def _ends(cables: Iterable[Link]) -> set[str]:
    return {port.node for cable in cables for port in (cable.a, cable.b)}


def link_losses(plan: Plan, delta: Snapshot) -> Iterator[tuple[str, int]]:
    """(direction, packets) wherever a queue sent more or fewer packets than the other end received."""
    return _losses_on(plan.topology.links, delta)


def _losses_on(cables: Iterable[Link], delta: Snapshot) -> Iterator[tuple[str, int]]:
    for cable in cables:
        for sender, receiver in ((cable.a, cable.b), (cable.b, cable.a)):
            lost = delta[sender].sent_packets - delta[receiver].received_packets
            if lost:
                yield f"{sender}->{receiver}", lost


def switch_losses(plan: Plan, delta: Snapshot, made: Mapping[str, int] = NOTHING) -> Iterator[tuple[str, int]]:
    """(switch, packets) wherever a switch's queues were offered more or fewer packets than it received and made."""
    for node in plan.nodes:
        if node.forwards:
            ports = [delta[port.port] for port in node.ports]
            lost = sum(p.received_packets for p in ports) + made.get(node.name, 0) - sum(p.offered_packets for p in ports)
            if lost:
                yield node.name, lost


def _check(name: str, losses: list[tuple[str, int]]) -> Check:
    note = ", ".join(f"{where}: {lost}" for where, lost in losses[:SHOWN])
    return Check(name, sum(abs(lost) for _, lost in losses), 0, ok=not losses, unit="packets", note=note)
