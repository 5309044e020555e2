"""Snapshots of every kernel counter that a run is judged by. Nothing is ever reset: a figure is the difference of two.

Source: TBF counts what left it (bytes, packets) and what it dropped, RED what it marked (tc-red(8): marked = prob + forced),
the link what arrived. The BPF marker's counts stand in where the kernel has no RED.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from pyroute2.netlink.rtnl.tcmsg import tcmsg

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
        ports = {port.ifindex: port.port for port in node.ports}
        values: dict[int, dict[str, int]] = {ifindex: {} for ifindex in ports}
        for message in queue.read(netlink):
            if message["index"] in values:
                values[message["index"]] |= _queue_values(message)
        for message in link.read(netlink):
            if message["index"] in values:
                stats = message.get_attr("IFLA_STATS64")
                values[message["index"]] |= {
                    "received_packets": stats["rx_packets"], "received_bytes": stats["rx_bytes"]
                }
        for ifindex, found in values.items():
            if ifindex in marks:
                found["marked_packets"] = marks[ifindex]
            counters[ports[ifindex]] = PortCounters(**found)
    return counters


def difference(before: Snapshot, after: Snapshot) -> Snapshot:
    return {port: after[port].since(before[port]) for port in after}


def _queue_values(message: tcmsg) -> dict[str, int]:
    kind = message.get_attr("TCA_KIND")
    stats = message.get_attr("TCA_STATS2")
    if kind == "red":
        return {"marked_packets": message.get_attr("TCA_XSTATS")["marked"]}
    if kind != "tbf":
        return {}
    basic, held = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
    return {
        "sent_packets": basic["packets"], "sent_bytes": basic["bytes"], "dropped_packets": held["drops"],
        "queued_packets": held["qlen"], "queued_bytes": held["backlog"],
    }
