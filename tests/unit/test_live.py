"""Promises about the dilation of a run: what the user asks for wins, else the clock and the load decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emu.nic.capacity import HostCapacity
from emu.scenario import loader, parameters
from emu.scenario.live import HEAD_ROOM, choose_scale
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps

ECHO = loader.load(str(Path(__file__).parent / "fixtures" / "echo.py"))
HOST_HOPS_PER_S = 390_000
HOST = HostCapacity(HOST_HOPS_PER_S, late_ns=100_000)
DECLARED = parameters.select("dilation")


def plan_of(servers: int):
    shape = SpineLeaf(
        servers=servers,
        gpus_per_server=2,
        wiring="rail",
        leaf_down=8,
        leaf_up=2,
        rate_bps=gbps(400),
        queue=QueueProfile(buffer_bytes=1 << 24),
    )
    return make_plan(shape.topology(), seed=1)


def dilation(clock: str, *settings: str, servers: int = 4, **changes: object) -> int:
    p = next(DECLARED.choose(settings).combinations())
    return choose_scale(plan_of(servers), replace(ECHO, **changes), p, clock, lambda: HOST).dilation


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_the_dilation_that_was_asked_for_wins(clock):
    assert dilation(clock, "dilation=7") == 7


def test_the_virtual_clock_does_not_care_how_much_there_is_to_carry():
    assert dilation("virtual", servers=1) == dilation("virtual", servers=8)


def test_on_the_real_clock_more_load_runs_slower_and_never_beyond_the_hosts_head_room():
    few, many = (dilation("real", offered_hops_per_s=lambda p, hops=hops: hops) for hops in (1e6, 1e8))
    assert few < many, f"{few} for 1e6 hops/s, {many} for 1e8"
    assert 1e8 / many <= HOST_HOPS_PER_S * HEAD_ROOM, f"{1e8 / many:.0f} hops/s asked of the host"
    assert dilation("real", servers=1) < dilation("real", servers=8)


def test_a_shaper_may_catch_up_on_the_real_clock_only():
    p = next(DECLARED.choose().combinations())
    assert choose_scale(plan_of(4), ECHO, p, "virtual", lambda: HOST).catch_up_ns == 0
    assert choose_scale(plan_of(4), ECHO, p, "real", lambda: HOST).catch_up_ns > 0


def test_a_host_with_late_timers_lets_shapers_catch_up_and_runs_slower_so_that_it_fills_no_queue():
    p = next(DECLARED.choose().combinations())
    fewest = replace(ECHO, offered_hops_per_s=lambda p: 1.0)
    prompt, late = (choose_scale(plan_of(4), fewest, p, "real", lambda ns=ns: HostCapacity(1e6, ns)) for ns in (0, 10_000_000))
    assert prompt.catch_up_ns == 500_000 and late.catch_up_ns == 10_000_000
    burst = late.burst_bytes(gbps(400), 4174)
    assert prompt.dilation < late.dilation and burst <= 0.13 * (1 << 24), f"{prompt}, {late}: bursts of {burst} bytes"
