"""From a scenario's topology to the live fabric, at a dilation that the clock and the host can hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from emu import scale
from emu.report.progress import Phase
from emu.scale import Scale
from emu.scenario.choice import Values
from emu.scenario.clock import VIRTUAL
from emu.scenario.loader import Scenario
from emu.topology.plan import Plan, make_plan

HEAD_ROOM = 0.08  # of the measured capacity: throttled queues cost several times an open one, and the host does other things
LATE_NS = 500_000  # how late the host's timers may be before a shaper loses rate


def build(scenario: Scenario, p: Values, phase: Phase, *, clock: str) -> AbstractContextManager[Any]:
    """The Fabric of one combination of parameters, built when entered."""
    from emu.fabric.fabric import Fabric  # needs pyroute2 and mininet, which `railbed list` does not

    plan = make_plan(scenario.topology(p), p.seed)
    phase.expect(len(plan.topology.links) + len(plan.ports))
    return Fabric(plan, choose_scale(plan, scenario, p, clock), advance=phase.advance)


@functools.cache
def host_hops_per_s() -> float:
    """Packet-hops a second that this host forwards, measured once per process (a second or so)."""
    from emu.nic.capacity import packet_hops_per_s

    return packet_hops_per_s()


def choose_scale(
    plan: Plan, scenario: Scenario, p: Values, clock: str, capacity: Callable[[], float] = host_hops_per_s
) -> Scale:
    """The dilation asked for, or the smallest that keeps time exact (virtual) or the host below HEAD_ROOM (real).

    A scenario that loads few links says so in offered_hops_per_s(p), packet-hops per second of fabric time; without it
    every NIC is taken to send full frames at line rate over two links.
    """
    asked = p.dilation if "dilation" in p.as_dict() else 0
    if clock == VIRTUAL:
        return Scale(dilation=asked or scale.for_virtual_clock(plan.fastest_bps, plan.frame_bytes))
    offered = scenario.offered_hops_per_s(p) if scenario.offered_hops_per_s else _every_nic_at_line_rate(plan)
    dilation = asked or scale.for_real_clock(offered, capacity(), HEAD_ROOM)
    return Scale(dilation=dilation, catch_up_ns=LATE_NS)


def _every_nic_at_line_rate(plan: Plan) -> float:
    return 2 * plan.topology.gpus * plan.fastest_bps / (8 * plan.frame_bytes)
