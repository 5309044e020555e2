"""How connections share one bottleneck over time: shares of fair, depth of the queue, and the curves of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.errors import UsageError
from emu.measure.metric import Series
from emu.measure.transfers import Sample, Transferred

START_UP_SHARE = 0.25  # of the time until the first connection has ended: rates converge
CURVE_POINTS = 400


@dataclass(frozen=True)
class Sharing:
    """`start` and `steady`: samples before and after convergence, up to the end of the first connection."""

    transferred: Transferred
    start: Sequence[Sample]
    steady: Sequence[Sample]

    @property
    def shares(self) -> list[float]:
        """Bytes of each connection over the mean of all, in the steady part."""
        got = [last - first for first, last in zip(self.steady[0].placed, self.steady[-1].placed, strict=True)]
        return [one * len(got) / sum(got) for one in got]

    @property
    def used_share(self) -> float:
        """Payload received over what the bottleneck carries of payload when it is never idle."""
        plan, first, last = self.transferred.fabric.plan, self.steady[0], self.steady[-1]
        goodput = (sum(last.placed) - sum(first.placed)) * 8e9 / (last.at_ns - first.at_ns)
        port = plan.ports[self.transferred.watched[0]]
        most = self.transferred.fabric.scale.kernel_bps(port.rate_bps) * plan.topology.path_mtu_bytes / plan.frame_bytes
        return goodput / most

    def row(self) -> dict[str, object]:
        depths = [sample.depths[0] for sample in self.steady]
        return {
            "share_min": min(self.shares), "share_max": max(self.shares), "used_share": self.used_share,
            "start_depth_bytes": max(sample.depths[0] for sample in self.start),
            "depth_max_bytes": max(depths), "depth_mean_bytes": sum(depths) / len(depths),
        }

    def series(self) -> list[Series]:
        """The queue at its deepest and each connection's goodput, in about CURVE_POINTS intervals of fabric time."""
        scale, samples = self.transferred.fabric.scale, self.transferred.samples
        step = max(1, len(samples) // CURVE_POINTS)
        shown = samples[::step]
        times_us = [scale.fabric_ns(sample.at_ns) / 1000 for sample in shown]
        kb = [max(sample.depths[0] for sample in samples[at : at + step]) / 1000 for at in range(0, len(samples), step)]
        curves = [Series("queue (kB)", str(self.transferred.watched[0]), "fabric time (µs)", times_us, kb)]
        for at, (source, _, _) in enumerate(self.transferred.connections):
            spans = [last.at_ns - first.at_ns for first, last in zip(shown, shown[1:], strict=False)]
            got = [last.placed[at] - first.placed[at] for first, last in zip(shown, shown[1:], strict=False)]
            rates = [size * 8 / scale.fabric_ns(span) for size, span in zip(got, spans, strict=True)]
            curves.append(Series("goodput (Gb/s)", str(source), "fabric time (µs)", times_us[1:], rates))
        return curves


def sharing(transferred: Transferred) -> Sharing:
    """UsageError if the run was too short for four samples before the first connection had ended."""
    busy = [sample for sample in transferred.samples
            if all(placed < total for placed, total in zip(sample.placed, transferred.connection_bytes, strict=True))]
    if len(busy) < 4:
        raise UsageError(f"{len(busy)} samples before the first flow ended; want 4: raise size_bytes or lower sample_us")
    turn = max(1, int(len(busy) * START_UP_SHARE))
    return Sharing(transferred, busy[:turn], busy[turn:])
