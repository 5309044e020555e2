"""Whether to believe a run: rate reached, CPU head-room, drops outside every modelled queue, knobs read back.

On the virtual clock work costs no time, so the CPU checks have nothing to say there and are left out: they hold for
clocks that the load can disturb.
"""

from __future__ import annotations

from emu.fabric.fabric import Fabric
from emu.fabric.host import HostLoad
from emu.measure.metric import Check

CPU_LIMIT = 0.85
RATE_TOLERANCE = 0.02


def knobs_check(fabric: Fabric) -> Check:
    """All knobs were read back when the fabric was built; a difference would have ended the build."""
    return Check("knobs read back unequal", 0, 0, ok=fabric.knobs_compared > 0, unit="ports and routes",
                 note=f"{fabric.knobs_compared} compared")


def backlog_check(before: HostLoad, after: HostLoad) -> Check:
    drops = after.backlog_drops - before.backlog_drops
    return Check("drops outside modelled queues", drops, 0, ok=drops == 0, unit="packets", note="softnet_stat")


def cpu_check(before: HostLoad, after: HostLoad) -> Check:
    """Head-room of the thread that sends, and in whose name the kernel forwards most packets."""
    busy = after.busy_share_since(before)
    return Check("CPU of the sending thread", round(busy, 3), CPU_LIMIT, ok=busy <= CPU_LIMIT, unit="of a core",
                 note="above it rates may be limited by this machine, not by the fabric; raise dilation")


def packet_work_check(before: HostLoad, after: HostLoad) -> Check:
    """Head-room where the kernel does all the work by itself, in soft interrupts."""
    busy = after.packet_work_since(before)
    return Check("packet work of the busiest CPU", round(busy, 3), CPU_LIMIT, ok=busy <= CPU_LIMIT, unit="of its time",
                 note="above it rates may be limited by this machine, not by the fabric; raise dilation")


def rate_check(name: str, asked_bps: float, reached_bps: float) -> Check:
    """|reached/asked − 1| against RATE_TOLERANCE."""
    off = abs(reached_bps / asked_bps - 1)
    return Check(name, round(off, 4), RATE_TOLERANCE, ok=off <= RATE_TOLERANCE, unit="share",
                 note=f"asked {asked_bps / 1e9:.4g} Gb/s, reached {reached_bps / 1e9:.4g} Gb/s (kernel time)")
