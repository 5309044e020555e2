"""Snapshots of every kernel counter that a run is judged by. Nothing is ever reset: a figure is the difference of two.

Source: TBF counts what left it (bytes, packets) and what it dropped, RED what it marked (tc-red(8): marked = prob + forced),
the link what arrived. The BPF marker's counts stand in where the kernel has no RED.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from emu.fabric import link, queue
from emu.fabric.fabric import Fabric
from emu.topology.model import Port


@dataclass(frozen=True)
class PortCounters:
    """One port. sent/dropped/marked: packets since boot of the queue; queued: now; received: packets off the wire."""

    sent_packets: int = 0
    sent_bytes: int = 0
    dropped_packets: int = 0
    queued_packets: int = 0
    queued_bytes: int = 0
    marked_packets: int = 0
    received_packets: int = 0
    received_bytes: int = 0

    def since(self, before: PortCounters) -> PortCounters:
        """Differences, but what is queued is queued now."""
        return PortCounters(
            **{
                f.name: getattr(self, f.name) - (0 if f.name.startswith("queued") else getattr(before, f.name))
                for f in fields(self)
            }
        )

    @property
    def offered_packets(self) -> int:
        """What reached the queue, by the queue's own account."""
        return self.sent_packets + self.dropped_packets + self.queued_packets


Snapshot = dict[Port, PortCounters]


def snapshot(fabric: Fabric) -> Snapshot:
    """Every port of the fabric."""
    marks = fabric.marks()
    counters: Snapshot = {}
    for node in fabric.plan.nodes:
        netlink = fabric.netlink(node.name)
        qdiscs, links = queue.read(netlink), link.read(netlink)
        for port in node.ports:
            tbf = qdiscs[port.ifindex, queue.TBF_HANDLE]
            red = qdiscs.get((port.ifindex, queue.RED_HANDLE))
            counters[port.port] = PortCounters(
                sent_packets=tbf.sent_packets, sent_bytes=tbf.sent_bytes, dropped_packets=tbf.dropped_packets,
                queued_packets=tbf.queued_packets, queued_bytes=tbf.queued_bytes,
                marked_packets=red.marked_packets if red else marks.get(port.ifindex, 0),
                received_packets=links[port.ifindex].received_packets,
                received_bytes=links[port.ifindex].received_bytes,
            )
    return counters


def difference(before: Snapshot, after: Snapshot) -> Snapshot:
    return {port: after[port].since(before[port]) for port in after}
