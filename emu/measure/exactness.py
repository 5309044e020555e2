"""Measured time against arithmetic: a transfer alone on its path, and a small packet's round trip.

ideal completion = N frames at the link rate + one more frame time for the store and forward of each further link
                 + propagation of every link
The emulator's own rounding is known and printed: TBF computes a frame's time in whole ns of kernel time, and its bucket
lets a frame on an idle link go at once, so each link's first frame is one frame time early.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from emu.fabric import host
from emu.fabric.fabric import Fabric
from emu.measure import conservation, fidelity
from emu.measure.counters import difference, snapshot
from emu.measure.metric import Check, Metric
from emu.nic import echo
from emu.nic.crafted import Injection, run_open_loop
from emu.nic.incast import circle
from emu.nic.receiver import Receivers
from emu.topology.model import Port

LINKS = 2
ECHOES = 5
SAMPLE_NS = 10_000_000


@dataclass(frozen=True)
class Transfer:
    """Kernel ns measured and ideal; `rounding` is the share that the emulator's own rounding may be off."""

    rate_bps: int
    packets: int
    bytes: int
    measured_ns: int
    ideal_ns: float
    rounding: float
    dilation: int
    fidelity: tuple[Check, ...]

    @property
    def off(self) -> float:
        return self.measured_ns / self.ideal_ns - 1

    def row(self) -> dict[str, object]:
        return {
            "emulated_gbps": self.rate_bps / 1e9, "delivered_packets": self.packets, "delivered_bytes": self.bytes,
            "completion_us": self.measured_ns / self.dilation / 1000, "ideal_us": self.ideal_ns / self.dilation / 1000,
            "off": self.off, "rounding": self.rounding,
        }

    def metrics(self) -> list[Metric]:
        return [Metric("delivered_packets", self.packets, "packets"), Metric("delivered_bytes", self.bytes, "bytes"),
                Metric("completion_us", self.measured_ns / self.dilation / 1000, "us")]

    def checks(self, tolerance: float) -> list[Check]:
        note = f"rounding of the emulator itself: up to {self.rounding:.4%}"
        return [Check("completion off by", round(self.off, 6), tolerance, ok=abs(self.off) <= tolerance, unit="share", note=note),
                *self.fidelity]


@dataclass(frozen=True)
class Echo:
    """Fabric ns of the median echo, and the sum of its delays: propagation and serialization of every link, both ways."""

    measured_ns: float
    ideal_ns: float

    @property
    def off(self) -> float:
        return self.measured_ns / self.ideal_ns - 1

    def row(self) -> dict[str, object]:
        return {"rtt_ns": self.measured_ns, "rtt_ideal_ns": self.ideal_ns, "rtt_off": self.off}

    def checks(self, tolerance: float) -> list[Check]:
        return [Check("round trip off by", round(self.off, 6), tolerance, ok=abs(self.off) <= tolerance, unit="share")]


def one_way(
    fabric: Fabric, sender: Port, receiver: Port, size_bytes: int, on_progress: Callable[[int], None] = lambda _packets: None
) -> Transfer:
    """Send `size_bytes` (whole packets) and time it from the first frame handed over to the last one's arrival."""
    target = fabric.ports[receiver]
    frames = circle(fabric, sender, receiver, [1])
    packets = -(-size_bytes // fabric.plan.topology.path_mtu_bytes)
    receivers = Receivers(fabric, [receiver])
    load, before, start_ns = host.load(), snapshot(fabric), time.monotonic_ns()
    run_open_loop(fabric, [Injection(nic=sender, frames=frames, count=packets)], [target.peer], SAMPLE_NS, on_progress)
    delta, arrived = difference(before, snapshot(fabric)), receivers.read()[receiver]
    rate_bps = fabric.scale.kernel_bps(target.rate_bps)
    frame_ns = len(frames[0]) * 8e9 / rate_bps
    ideal_ns = (packets + LINKS - 1) * frame_ns + LINKS * fabric.scale.kernel_ns(target.delay_ns)
    checks = (*conservation.checks(fabric.plan, delta), fidelity.backlog_check(load, host.load()), fidelity.knobs_check(fabric))
    return Transfer(rate_bps, arrived.packets, arrived.bytes, arrived.last_ns - start_ns, ideal_ns,
                    1 / frame_ns + LINKS / packets, fabric.dilation, checks)


def round_trip(fabric: Fabric, sender: Port, receiver: Port) -> Echo:
    """The median of a few echoes on an idle path."""
    target = fabric.ports[receiver]
    measured_ns = statistics.median(echo.round_trips_ns(fabric, sender, receiver, ECHOES))
    serialization_ns = echo.FRAME_BYTES * 8e9 / target.rate_bps
    return Echo(fabric.scale.fabric_ns(measured_ns), 2 * LINKS * (target.delay_ns + serialization_ns))
