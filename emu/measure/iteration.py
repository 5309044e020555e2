"""An iteration that was run as one chain of messages: when each event ended, what each kind of traffic put on which links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property

from emu.measure.metric import Bars, Check, Metric
from emu.measure.transfers import Transferred
from emu.nic.iteration import Chain, kind_of
from emu.workload.compute_clock import ComputeClock
from emu.workload.emulated import Emulated
from emu.workload.event import KINDS, sent_by_kind
from emu.workload.links import Links
from emu.workload.timeline import Bar, busy_ns, end_ns, timeline

TRAFFIC = KINDS[1:]
SCALE_UP_PORT, NIC_PORT = "nv", "rail"


class Iteration:
    """`chain` as it was run; `links`: rates for the bound without contention and latency."""

    def __init__(self, emulated: Emulated, chain: Chain, transferred: Transferred, clock: ComputeClock, links: Links) -> None:
        self.emulated, self.chain, self.transferred, self.clock, self.links = emulated, chain, transferred, clock, links

    @cached_property
    def ended_ns(self) -> list[int]:
        """Of each event, fabric ns since the first packet: when it had ended on every rank."""
        first, done, scale = self.transferred.outcome.first_ns, self.transferred.done_ns, self.transferred.fabric.scale
        return [round(scale.fabric_ns(max((done[index] for index in ends), default=first) - first)) for ends in self.chain.ends]

    @cached_property
    def bars(self) -> list[Bar]:
        """As measured; each event begins, as timeline() has it, when the last of those it waits for has ended everywhere."""
        durations = iter([
            max(0, ended - max((self.ended_ns[before] for before in event.after), default=0))
            for event, ended in zip(self.chain.events, self.ended_ns, strict=True)
        ])
        return timeline(self.chain.events, lambda event: next(durations))

    @cached_property
    def bound(self) -> list[Bar]:
        """Every communication at the rate of its busiest link."""
        return timeline(self.chain.events, self.links)

    @cached_property
    def placed_bytes(self) -> Counter[tuple[str, str]]:
        """(kind, kind of port) -> payload that has arrived there, from the NICs' counters."""
        placed: Counter[tuple[str, str]] = Counter()
        for (port, _, channel), end in self.transferred.ends.items():
            placed[kind_of(channel), re.match("[a-z]+", port.ifname)[0]] += end.placed_bytes
        return placed

    def rows(self) -> list[dict[str, object]]:
        """One for each kind: bytes of the whole iteration and of what was emulated, and the time it took; then the iteration."""
        sent = sent_by_kind(self.chain.events)
        compute = self._times("compute", self._busy_us(self.bars)["compute"], self._busy_us(self.bound)["compute"])
        kinds = [self._row(kind, int(sent[kind])) for kind in TRAFFIC if self.emulated.whole[kind] or sent[kind]]
        return [*kinds, compute, self._times("iteration", end_ns(self.bars) / 1000, end_ns(self.bound) / 1000)]

    def _row(self, kind: str, sent_bytes: int) -> dict[str, object]:
        formula = self.emulated.formula
        listed = [self.chain.transfer_bytes[kind, link] for link in ("scale_up", "scale_out")]
        return {
            "iteration_bytes": int(self.emulated.whole[kind]),
            **({"formula_bytes": int(formula[kind])} if formula else {}),
            "emulated_bytes": sent_bytes, "listed_bytes": sum(listed), "scale_out_bytes": listed[1],
            "nic_placed_bytes": self.placed_bytes[kind, NIC_PORT],
            "scale_up_placed_bytes": self.placed_bytes[kind, SCALE_UP_PORT],
            **self._times(kind, self._busy_us(self.bars)[kind], self._busy_us(self.bound)[kind]),
        }

    @staticmethod
    def _times(kind: str, measured_us: float, bound_us: float) -> dict[str, object]:
        return {"kind": kind, "busy_us": measured_us, "bound_us": bound_us}

    def _busy_us(self, bars: list[Bar]) -> Mapping[str, float]:
        """By kind, summed over all lanes."""
        total: Counter[str] = Counter()
        for lane in dict.fromkeys(bar.lane for bar in bars):
            total.update(busy_ns(bars, lane))
        return {kind: total[kind] / 1000 for kind in KINDS}

    def metrics(self) -> list[Metric]:
        return [
            Metric("iteration_us", end_ns(self.bars) / 1000, "us", note=self.emulated.said),
            Metric("iteration_bound_us", end_ns(self.bound) / 1000, "us", note="every communication at its busiest link's rate"),
            *([Metric("nic_of_gpu", " ".join(map(str, self.chain.nic_of)), "NIC")] if self.chain.nic_of else []),
            *self.transferred.metrics(),
        ]

    def checks(self) -> list[Check]:
        """Those of the transfers, and that computations take what was asked for, to a frame of their clock."""
        off_ns = max((abs(bar.end_ns - bar.start_ns - event.duration_ns)
                      for bar, event in zip(self.bars, self.chain.events, strict=True) if not event.collective), default=0)
        limit_ns = round(self.clock.error_ns) + 1
        return [*self.transferred.checks(), Check("computation off by", off_ns, limit_ns, ok=off_ns <= limit_ns, unit="ns")]

    def picture(self) -> list[Bars]:
        """A lane for each stage and each pair of stages, a colour for each kind."""
        spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for bar in self.bars:
            spans.setdefault((bar.lane, bar.kind), []).append((bar.start_ns / 1000, (bar.end_ns - bar.start_ns) / 1000))
        return [Bars("iteration", lane, kind, "fabric time (µs)", found) for (lane, kind), found in spans.items()]
