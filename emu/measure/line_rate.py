"""What the time of a run is held against: payload in full frames, headers included, at line rate."""

from __future__ import annotations

from emu.nic.message import Messages, sent_and_received
from emu.topology.plan import Plan


def line_us(plan: Plan, size_bytes: float, rate_bps: int) -> float:
    """Fabric time that `size_bytes` of payload take at `rate_bps`."""
    return size_bytes * plan.frame_bytes / plan.topology.path_mtu_bytes * 8e6 / rate_bps


def busiest_nic_us(plan: Plan, messages: Messages) -> float:
    """What the NIC needs that has most to send or to receive."""
    return max(line_us(plan, size, plan.ports[nic].rate_bps) for of in sent_and_received(messages) for nic, size in of.items())
