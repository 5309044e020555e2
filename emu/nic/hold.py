"""Hold a port's queue at a chosen depth, so that a marker can be asked what it does there.

Two senders start together, both at line rate: until the filler has sent its `depth` bytes the port gets twice what it can
pass on and the queue grows to that depth; from then on the steady sender alone feeds exactly what leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.nic.crafted import Injection, Sent, run_open_loop
from emu.nic.incast import DEPTH_SAMPLES, circle
from emu.topology.model import Port

SETTLE = 1.1  # of the time the queue takes to fill: only later samples count as held


@dataclass(frozen=True)
class Held:
    """packets that found the queue growing and held; depths (bytes) seen while held, at equal intervals."""

    growing_packets: int
    held_packets: int
    depths: Sequence[int]
    sent: Sent


def hold_queue(fabric: Fabric, filler: Port, steady: Port, receiver: Port, depth_bytes: int, packets: int) -> Held:
    """Grow the queue towards `receiver` to `depth_bytes`, then send `packets` more through it at its line rate."""
    target = fabric.ports[receiver]
    frames = [circle(fabric, sender, receiver, [qpn]) for qpn, sender in enumerate((filler, steady), start=1)]
    frame_bytes = len(frames[0][0])
    filling = depth_bytes // frame_bytes
    injections = [Injection(nic=steady, frames=frames[1], count=filling + packets)]
    if filling:
        injections.append(Injection(nic=filler, frames=frames[0], count=filling))
    frame_ns = frame_bytes * 8e9 / fabric.scale.kernel_bps(target.rate_bps)
    period_ns = max(20_000, round((filling + packets) * frame_ns / DEPTH_SAMPLES))
    sent = run_open_loop(fabric, injections, [target.peer], period_ns)
    start_ns, end_ns = filling * frame_ns * SETTLE, (filling + packets) * frame_ns
    depths = [depth for at_ns, depth in sent.depths[target.peer] if start_ns < at_ns < end_ns]
    return Held(growing_packets=2 * filling, held_packets=packets, depths=depths, sent=sent)
