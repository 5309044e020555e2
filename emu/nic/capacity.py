"""What this host can do: packet-hops a second, and how late its timers come. The real clock's scale is chosen from both.

A hop is a packet leaving a queue. Measured on the shortest path there is, NIC -> leaf -> NIC, at a rate that no
queue throttles, with full-size frames; the best of a few short runs, since whatever else ran meanwhile only slows it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.nic.crafted import Injection, run_open_loop
from emu.nic.incast import circle
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

RUNS, PACKETS, HOPS_PER_PACKET = 3, 10_000, 2
SAMPLE_NS = 1_000_000
TIMER_WAITS, TIMER_WAIT_NS = 200, 1_000_000


@dataclass(frozen=True)
class HostCapacity:
    """Packet-hops per second of wall time (one sender, one thread), and how late all but the last timers come."""

    hops_per_s: float
    late_ns: int


def measure() -> HostCapacity:
    """About a second."""
    return HostCapacity(packet_hops_per_s(), timer_lateness_ns())


def timer_lateness_ns() -> int:
    """The second largest delay of TIMER_WAITS waits: one in a hundred may be later."""
    late_ns = []
    for _ in range(TIMER_WAITS):
        due_ns = time.monotonic_ns() + TIMER_WAIT_NS
        time.sleep(TIMER_WAIT_NS / 1e9)
        late_ns.append(time.monotonic_ns() - due_ns)
    return sorted(late_ns)[-2]


def packet_hops_per_s() -> float:
    """Packet-hops per second of wall time, one sender, one thread."""
    shape = SpineLeaf(servers=2, gpus_per_server=1, wiring="rail", leaf_down=2, leaf_up=0, rate_bps=gbps(1600),
                      queue=QueueProfile(buffer_bytes=mib(64)))
    with Fabric(make_plan(shape.topology(), seed=0), Scale(dilation=1)) as fabric:
        frames = circle(fabric, nic(1, 0), nic(0, 0), [1])
        injection = Injection(nic=nic(1, 0), frames=frames, count=PACKETS)
        fastest_ns = min(run_open_loop(fabric, [injection], [], SAMPLE_NS).elapsed_ns for _ in range(RUNS))
    return PACKETS * HOPS_PER_PACKET * 1e9 / fastest_ns
