"""How well a fabric's uplinks were shared, and what completion time could have been: one load balancer against the ideal.

The ideal is physical: every NIC, and the uplinks of every leaf together, at line rate with full frames from the first to the
last packet. `completion` over it says what hashing, reordering or waiting cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from emu.measure.hashing import expected_efficiency
from emu.measure.line_rate import busiest_nic_us, line_us
from emu.measure.metric import Metric, Series
from emu.measure.transfers import Transferred
from emu.measure.uplinks import Spread
from emu.switch.leaves import leaf_of_nic, leaves
from emu.topology.model import Port
from emu.topology.plan import Plan

FIGURE_LEAF = 0  # whose uplinks are drawn


def uplinks_of(plan: Plan) -> dict[str, list[Port]]:
    """Leaf -> its ports towards other switches, in order."""
    return {leaf.name: [port.port for port in leaf.up] for leaf in leaves(plan)}


class Balance:
    """A run's uplinks. `uplinks`: leaf -> ports; `leaf_of` each NIC."""

    def __init__(self, transferred: Transferred) -> None:
        self.transferred = transferred
        self.plan = transferred.fabric.plan
        self.uplinks = uplinks_of(self.plan)
        self.leaf_of = leaf_of_nic(leaves(self.plan))

    @cached_property
    def flows(self) -> Counter[str]:
        """Leaf -> connections that leave it by an uplink."""
        return Counter(self.leaf_of[source] for source, target, _ in self.transferred.connections
                       if self.leaf_of.get(source) != self.leaf_of.get(target))

    @cached_property
    def spreads(self) -> dict[str, Spread]:
        """Leaf -> bytes that its queues sent to each uplink, for leaves whose flows leave them."""
        delta = self.transferred.delta
        return {leaf: Spread([delta[port].sent_bytes for port in ports])
                for leaf, ports in self.uplinks.items() if self.flows[leaf]}

    @cached_property
    def ideal_us(self) -> float:
        """Fabric time that the busiest NIC or the uplinks of the busiest leaf need at line rate, headers included."""
        up, down = Counter(), Counter()
        for (source, target, _), size_bytes in self.transferred.messages.connection_bytes.items():
            source_leaf, target_leaf = self.leaf_of.get(source), self.leaf_of.get(target)  # None: a cable between GPUs
            if source_leaf != target_leaf:
                up[source_leaf] += size_bytes
                down[target_leaf] += size_bytes
        ports, nic_us = self.plan.ports, busiest_nic_us(self.plan, self.transferred.messages)
        leaf_us = [line_us(self.plan, size, sum(ports[port].rate_bps for port in self.uplinks[leaf]))
                   for of in (up, down) for leaf, size in of.items()]
        return max(nic_us, *leaf_us) if leaf_us else nic_us

    @property
    def busbw_fraction(self) -> float:
        """Of the ideal."""
        return self.ideal_us / self.transferred.completion_us

    def row(self) -> dict[str, object]:
        """One line of a table. Without a flow between leaves there are no uplink figures."""
        row = {"ideal_us": self.ideal_us, "busbw_fraction": self.busbw_fraction}
        if not self.spreads:
            return row
        efficiencies = [spread.efficiency for spread in self.spreads.values()]
        return row | {
            "uplink_max_over_mean": max(spread.max_over_mean for spread in self.spreads.values()),
            "uplink_idle_share": _mean([spread.idle_share for spread in self.spreads.values()]),
            "uplink_efficiency": _mean(efficiencies),
            "hash_efficiency": _mean([expected_efficiency(len(self.uplinks[leaf]), self.flows[leaf]) for leaf in self.spreads]),
            "flows_per_uplink": _mean([self.flows[leaf] / len(self.uplinks[leaf]) for leaf in self.spreads]),
            "uplink_bytes": self.spreads[self._drawn].uplink_bytes,
        }

    @property
    def _drawn(self) -> str:
        return list(self.spreads)[FIGURE_LEAF]

    def metrics(self) -> list[Metric]:
        reached = Metric("busbw_fraction", self.busbw_fraction, "ratio", note="ideal time at line rate over completion")
        return [reached] + (self.spreads[self._drawn].metrics() if self.spreads else [])

    def series(self, name: str) -> list[Series]:
        """The reference article's figure 3: bytes of each uplink of one leaf."""
        if not self.spreads:
            return []
        megabytes = [size / 1e6 for size in self.spreads[self._drawn].uplink_bytes]
        return [Series(f"sent by {self._drawn} (MB)", name, "uplink", [float(at) for at in range(len(megabytes))], megabytes)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
