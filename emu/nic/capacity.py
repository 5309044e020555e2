"""How many packet-hops a second this host forwards: what the real clock's dilation is chosen from.

A hop is a packet leaving a queue. Measured on the shortest path there is, NIC -> leaf -> NIC, at a rate that no
queue throttles, with full-size frames; the best of a few short runs, since whatever else ran meanwhile only slows it.
"""

from __future__ import annotations

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


def packet_hops_per_s() -> float:
    """Packet-hops per second of wall time, one sender, one thread."""
    shape = SpineLeaf(servers=2, gpus_per_server=1, wiring="rail", leaf_down=2, leaf_up=0, rate_bps=gbps(1600),
                      queue=QueueProfile(buffer_bytes=mib(64)))
    with Fabric(make_plan(shape.topology(), seed=0), Scale(dilation=1)) as fabric:
        frames = circle(fabric, nic(1, 0), nic(0, 0), [1])
        injection = Injection(nic=nic(1, 0), frames=frames, count=PACKETS)
        fastest_ns = min(run_open_loop(fabric, [injection], [], SAMPLE_NS).elapsed_ns for _ in range(RUNS))
    return PACKETS * HOPS_PER_PACKET * 1e9 / fastest_ns
