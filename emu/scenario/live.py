"""From a scenario's topology to the live fabric, at a dilation that the clock and the host can hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from emu import scale
from emu.report.progress import Phase
from emu.scale import Scale
from emu.scenario.choice import Values
from emu.scenario.clock import VIRTUAL
from emu.scenario.loader import Scenario
from emu.topology.plan import Plan, make_plan

if TYPE_CHECKING:
    from emu.nic.capacity import HostCapacity

HEAD_ROOM = 0.08  # of the measured capacity: throttled queues cost several times an open one, and the host does other things
LATE_MIN_NS = 500_000  # what timers may be late even on a host that looked better when it was measured
CATCH_UP_OF_KMIN = 0.125  # a shaper that catches up, or eight of them, must not fill the queue that is to be measured


def build(scenario: Scenario, p: Values, phase: Phase, *, clock: str) -> AbstractContextManager[Any]:
    """The Fabric of one combination of parameters, built when entered."""
    from emu.fabric.fabric import Fabric  # needs pyroute2 and mininet, which `railbed list` does not

    asked = p.as_dict()
    seeds = {"hash_seeds": p.hash_seed} if "hash_seed" in asked else {}
    plan = make_plan(scenario.topology(p), p.seed, **seeds)
    phase.expect(len(plan.topology.links) + len(plan.ports))
    return Fabric(
        plan, choose_scale(plan, scenario, p, clock), advance=phase.advance,
        elided="payload" in asked and p.payload == "elided", paced="cc" in asked and p.cc == "dcqcn",
    )


@functools.cache
def host_capacity() -> HostCapacity:
    """Measured once per process (a second or so)."""
    from emu.nic import capacity  # needs pyroute2 and mininet too

    return capacity.measure()


def choose_scale(
    plan: Plan, scenario: Scenario, p: Values, clock: str, capacity: Callable[[], HostCapacity] = host_capacity
) -> Scale:
    """The dilation asked for, or the smallest that keeps time exact (virtual) or the host below HEAD_ROOM (real).

    A scenario that loads few links says so in offered_hops_per_s(p), packet-hops per second of fabric time; without it
    every NIC is taken to send full frames at line rate over two links.
    """
    asked = p.dilation if "dilation" in p.as_dict() else 0
    if clock == VIRTUAL:
        return Scale(dilation=asked or scale.for_virtual_clock(plan.fastest_bps, plan.frame_bytes))
    host = capacity()
    late_ns = max(LATE_MIN_NS, host.late_ns)
    offered = scenario.offered_hops_per_s(p) if scenario.offered_hops_per_s else _every_nic_at_line_rate(plan)
    dilation = max(
        scale.for_real_clock(offered, host.hops_per_s, HEAD_ROOM),
        scale.at_least(plan.fastest_bps * late_ns / (8e9 * _catch_up_bytes(plan))),
    )
    return Scale(dilation=asked or dilation, catch_up_ns=late_ns)


def _catch_up_bytes(plan: Plan) -> float:
    queue = plan.topology.queue
    return CATCH_UP_OF_KMIN * max(plan.frame_bytes, queue.ecn.kmin_bytes if queue.ecn else queue.buffer_bytes)


def _every_nic_at_line_rate(plan: Plan) -> float:
    return 2 * plan.topology.gpus * plan.fastest_bps / (8 * plan.frame_bytes)
