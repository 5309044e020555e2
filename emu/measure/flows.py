"""Flow completion times of a connection matrix that was run."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from emu.measure.metric import Metric
from emu.measure.percentile import percentile
from emu.measure.transfers import Transferred
from emu.nic.connection_matrix import PS_PER_NS, Flows
from emu.topology.frame import frames_bytes


class Measured:
    """`flows` as they ran. Fabric µs; a flow with a start time counts from it, one with a trigger from the end before."""

    def __init__(self, flows: Flows, transferred: Transferred) -> None:
        self.flows, self.transferred = flows, transferred

    @cached_property
    def ended_us(self) -> list[float]:
        return [self.transferred.done_us([index]) for index in self.flows.indexes]

    @cached_property
    def completion_us(self) -> list[float]:
        """Of each flow, in the matrix's order."""
        return [ended - max((self.ended_us[before] for before in flow.after), default=flow.start_ps / PS_PER_NS / 1000)
                for flow, ended in zip(self.flows.matrix.flows, self.ended_us, strict=True)]

    @property
    def ideal_us(self) -> float:
        """Frames of the flows, but for the first, at line rate through the busiest NIC; no start time, no latency."""
        fabric, load = self.transferred.fabric, Counter()
        for index in self.flows.indexes:
            source, target, size_bytes, _, _ = self.flows.messages[index]
            frames = frames_bytes(size_bytes, fabric.plan.topology.path_mtu_bytes)
            load[source, "out"] += frames
            load[target, "in"] += frames
        first = fabric.plan.frame_bytes
        return max(max(0, size - first) * 8e6 / fabric.ports[port].rate_bps for (port, _), size in load.items())

    def row(self) -> dict[str, object]:
        ascending = sorted(self.completion_us)
        return {
            "rate_gbps": self._rate_gbps, "flows": len(ascending),
            "flow_bytes": sum(flow.size_bytes for flow in self.flows.matrix.flows),
            "notices": self.flows.notices, "fct_p50_us": percentile(ascending, 0.5), "fct_p99_us": percentile(ascending, 0.99),
            "fct_max_us": ascending[-1], "last_us": max(self.ended_us), "ideal_us": self.ideal_us,
        }

    @property
    def _rate_gbps(self) -> float:
        """Of the first flow's NIC."""
        return self.transferred.fabric.ports[self.flows.messages[self.flows.indexes[0]].source].rate_bps / 1e9

    def metrics(self) -> list[Metric]:
        row = self.row()
        return [Metric(name, row[name], "us") for name in ("fct_p50_us", "fct_p99_us", "fct_max_us", "last_us")]
