"""A collective's run in the terms of nccl-tests, and against what the NICs of a server can carry.

The limit: every ring or double tree moves 2(n - 1)/n·size (at most 2·size) out of each server and into it, so busbw cannot
exceed the payload that all NICs of a server carry together in one direction, full frames end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from emu.collectives.formulas import algbw_gbyte_per_s, bus_factor, busbw_gbyte_per_s
from emu.measure.balance import Balance
from emu.measure.metric import Metric, Series
from emu.measure.transfers import Transferred
from emu.topology.plan import Plan

FACTOR_NOTE = "busbw / algbw: 2(n - 1)/n of {} ranks, as nccl-tests"
LIMIT_NOTE = "NICs of a server one way, line rate, payload of full frames: a ring moves busbw through them"


def busbw_limit_gbyte_per_s(plan: Plan, nics: int) -> float:
    """Payload rate of that many NICs in one direction: line rate, times the share of a full frame that is payload."""
    rate_bps = min(port.rate_bps for port in plan.ports.values())
    return nics * rate_bps / 8e9 * plan.topology.path_mtu_bytes / plan.frame_bytes


class Collective:
    """`transferred` was one `collective` of `size_bytes` over `ranks`, with `nics` of each server."""

    def __init__(self, transferred: Transferred, collective: str, ranks: int, size_bytes: int, nics: int) -> None:
        self.transferred, self.plan = transferred, transferred.fabric.plan
        self.collective, self.ranks, self.size_bytes, self.nics = collective, ranks, size_bytes, nics
        self.balance = Balance(transferred)

    def row(self) -> dict[str, object]:
        elapsed_s = self.transferred.completion_us / 1e6
        busbw = busbw_gbyte_per_s(self.collective, self.ranks, self.size_bytes, elapsed_s)
        limit = busbw_limit_gbyte_per_s(self.plan, self.nics)
        return {
            "algbw_GBps": algbw_gbyte_per_s(self.size_bytes, elapsed_s), "busbw_GBps": busbw,
            "bus_factor": bus_factor(self.collective, self.ranks), "busbw_limit_GBps": limit, "busbw_fraction": busbw / limit,
            "ranks": self.ranks, "messages": len(self.transferred.messages), "leaf_marked_packets": max(self.leaf_marks.values()),
            "local_share": self.local_share,
        }

    @property
    def leaf_marks(self) -> dict[str, int]:
        """ECN marks of each leaf's queues."""
        delta, nodes = self.transferred.delta, {node.name: node for node in self.plan.nodes}
        return {leaf: sum(delta[port.port].marked_packets for port in nodes[leaf].ports) for leaf in self.balance.uplinks}

    @property
    def local_share(self) -> float:
        """Of the bytes sent: those between NICs under one leaf."""
        leaf_of, sizes = self.balance.leaf_of, self.transferred.messages.connection_bytes
        local = sum(size for (source, target, _), size in sizes.items() if leaf_of[source] == leaf_of[target])
        return local / self.transferred.size_bytes

    def metrics(self) -> list[Metric]:
        row = self.row()
        factor = f"algbw times {row['bus_factor']:.4f}, 2(n-1)/n of {self.ranks}"
        return [
            Metric("algbw_GBps", row["algbw_GBps"], "GB/s", note="size / time"),
            Metric("busbw_GBps", row["busbw_GBps"], "GB/s", note=factor),
            Metric("busbw_fraction", row["busbw_fraction"], "ratio", note=f"of {row['busbw_limit_GBps']:.1f} GB/s"),
        ]


def curves(rows: Sequence[Mapping[str, object]], name: str) -> list[Series]:
    """Time and busbw against size, both axes logarithmic."""
    sizes = [float(row["size_bytes"]) for row in rows]
    panels = {"time (µs)": "completion_us", "busbw (GB/s)": "busbw_GBps"}
    return [Series(panel, name, "size (bytes)", sizes, [row[key] for row in rows], log=True) for panel, key in panels.items()]


def crossover_bytes(ring_us: Mapping[int, float], tree_us: Mapping[int, float]) -> float | None:
    """Size from which the ring is at least as fast at every size measured; None if it isn't even at the last.

    Between the two sizes measured on either side it is where straight lines on log axes meet; below the first it is the first.
    """
    sizes = sorted(ring_us.keys() & tree_us.keys())
    lead = [log(tree_us[size] / ring_us[size]) for size in sizes]
    if not sizes or lead[-1] < 0:
        return None
    first = max((at + 1 for at, ahead in enumerate(lead) if ahead < 0), default=0)
    if not first:
        return float(sizes[0])
    low, high = lead[first - 1], lead[first]
    return exp(log(sizes[first - 1]) + log(sizes[first] / sizes[first - 1]) * -low / (high - low))


def conclusions(rows: Sequence[Mapping[str, object]]) -> list[Metric]:
    """What rows of several algorithms say together: crossovers, and what busbw and busbw_fraction are made of."""
    stated = []
    for row in {row["gpus"]: row for row in rows}.values():
        gpus = row["gpus"]
        times = _times(rows, gpus)
        stated += [
            Metric(f"bus_factor_{gpus}_gpus", row["bus_factor"], "ratio", note=FACTOR_NOTE.format(row["ranks"])),
            Metric(f"busbw_limit_GBps_{gpus}_gpus", row["busbw_limit_GBps"], "GB/s", note=LIMIT_NOTE),
            *(_crossover(times, algo, gpus) for algo in times if algo != "ring" and "ring" in times),
        ]
    return stated


def _times(rows: Sequence[Mapping[str, object]], gpus: int) -> dict[str, dict[int, float]]:
    """Algorithm -> size -> time."""
    times: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["gpus"] == gpus:
            times.setdefault(row["algo"], {})[row["size_bytes"]] = row["completion_us"]
    return times


def _crossover(times: Mapping[str, Mapping[int, float]], algo: str, gpus: int) -> Metric:
    size_bytes = crossover_bytes(times["ring"], times[algo])
    note = "from here on the ring is faster" if size_bytes else f"{algo} is faster at the largest size"
    return Metric(f"crossover_{algo}_{gpus}_gpus", round(size_bytes) if size_bytes else "none", "bytes", note=note)
