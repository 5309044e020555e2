"""Promises of the switch's tables that need no kernel: leaves, what they reach, with dead links too, and the time of a frame."""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.bpf import build
from emu.errors import TopologyError, UsageError
from emu.switch import leaves as numbered
from emu.switch import tables
from emu.switch.byte_time import ByteTime
from emu.switch.leaves import leaves, numbering, reach
from emu.switch.modes import MODES, mode
from emu.topology.model import Topology
from emu.topology.plan import make_plan, routes_without
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

UPLINKS = 4


def topology(wiring: str = "rail", servers: int = 8, spines: int | None = None) -> Topology:
    shape = SpineLeaf(servers=servers, gpus_per_server=2, wiring=wiring, leaf_down=4, leaf_up=UPLINKS, spines=spines,
                      rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(1)))
    return shape.topology()


@pytest.mark.parametrize("wiring", ["rail", "single"])
@pytest.mark.parametrize("servers", [8, 10])
def test_an_address_tells_its_leaf(wiring: str, servers: int):
    plan = make_plan(topology(wiring, servers), seed=1)
    numbers = numbering(plan)
    for leaf in leaves(plan):
        for port in leaf.down:
            address = int(ipaddress.IPv4Address(port.peer_address))
            got = address - numbers.network >> numbers.shift
            assert got == leaf.number, f"{port.peer_address} under {leaf.name}: leaf {got}, want {leaf.number}"


def test_every_leaf_reaches_every_other_by_all_uplinks_and_not_itself():
    plan = make_plan(topology(), seed=1)
    for leaf in leaves(plan):
        found = reach(leaf, leaf.node.routes, numbering(plan))
        wanted = [() if other == leaf.number else tuple(range(UPLINKS)) for other in range(4)]
        assert found == wanted, f"{leaf.name}: {found}"


def test_a_dead_link_is_avoided_by_both_its_leaf_and_all_that_would_come_down_it():
    plan = make_plan(topology(), seed=1)
    dead = next(link for link in plan.topology.links if str(link.a) == "leaf1:up2")
    routes, numbers = routes_without(plan, [dead]), numbering(plan)
    for leaf in leaves(plan):
        found = reach(leaf, routes[leaf.name], numbers)
        for other in range(4):
            avoids = 1 in (leaf.number, other)
            wanted = () if other == leaf.number else (0, 1, 3) if avoids else (0, 1, 2, 3)
            assert found[other] == wanted, f"{leaf.name} to leaf {other}: {found[other]}, want {wanted}"


def test_of_two_links_to_one_spine_the_other_still_serves():
    plan = make_plan(topology(spines=2), seed=1)
    dead = next(link for link in plan.topology.links if str(link.a) == "leaf1:up2")
    routes, numbers = routes_without(plan, [dead]), numbering(plan)
    found = {leaf.name: reach(leaf, routes[leaf.name], numbers) for leaf in leaves(plan)}
    assert found["leaf0"][1] == (0, 1, 2, 3) and found["leaf1"][0] == (0, 1, 3), found


def test_hash_seeds_differ_by_switch_or_are_shared_and_always_follow_the_run_s_seed():
    def seeds(seed: int, hash_seeds: str) -> list[int]:
        return [node.hash_seed for node in make_plan(topology(), seed, hash_seeds=hash_seeds).nodes if node.forwards]

    assert len(set(seeds(1, "per_switch"))) == 8 and len(set(seeds(1, "shared"))) == 1
    for kind in ("per_switch", "shared"):
        assert seeds(1, kind) == seeds(1, kind) != seeds(2, kind)
        assert 0 not in seeds(1, kind), "0 would be the kernel's own"
    with pytest.raises(UsageError, match="unknown hash_seed 'same'.*per_switch, shared"):
        seeds(1, "same")


def test_leaves_draw_differently_and_as_the_run_s_seed_says():
    one, other = (make_plan(topology(), seed) for seed in (1, 2))
    drawn = [leaf.random_seed for plan in (one, other) for leaf in leaves(plan)]
    assert len(set(drawn)) == 8
    assert drawn[:4] == [leaf.random_seed for leaf in leaves(one)]


def test_more_uplinks_than_there_is_room_for_are_refused_with_figures(monkeypatch):
    monkeypatch.setattr(numbered, "UPLINKS_MAX", UPLINKS - 1)
    with pytest.raises(TopologyError, match="leaf0 has 4 uplinks; the switch program has room for 3"):
        leaves(make_plan(topology(), seed=1))


def test_python_and_the_program_agree_on_how_much_there_is_room_for():
    header = (build.SOURCES / "switch.h").read_text()
    stated = {name: eval(value) for name, value in re.findall(r"#define (\w+_MAX) (\(.*\)|\d+)", header)}
    got = {"LEAVES_MAX": numbered.LEAVES_MAX, "UPLINKS_MAX": numbered.UPLINKS_MAX, "GROUPS_MAX": tables.GROUPS_MAX}
    assert got == {name: stated[name] for name in got}


@given(rate_bytes=st.integers(1, 1 << 38), length=st.integers(1, 9000))
def test_a_frame_lasts_as_long_as_its_rate_says_to_a_nanosecond_and_never_longer(rate_bytes: int, length: int):
    exact = Fraction(length * 1_000_000_000, rate_bytes)
    got = ByteTime.at(rate_bytes).ns(length)
    assert exact * (1 - Fraction(1, 1 << 30)) - 1 < got <= exact, f"{got} ns, exactly {float(exact):.3f}"


def test_a_link_without_a_rate_is_refused():
    with pytest.raises(UsageError, match="0 bytes/s passes nothing"):
        ByteTime.at(0)


def test_modes_are_found_by_name_and_a_wrong_one_names_them():
    assert [type(mode(name)) for name in MODES] == list(MODES.values())
    assert mode("flowlet", gap_ns=7).gap_ns == 7
    with pytest.raises(UsageError, match="unknown lb 'sprai'.*spray"):
        mode("sprai")
    with pytest.raises(UsageError, match="gap_ns=-1; want 0"):
        mode("flowlet", gap_ns=-1)
    with pytest.raises(UsageError, match="unknown match 'mac'.*qp"):
        mode("path", match="mac")


@pytest.mark.parametrize("name", [name for name in MODES if name != "ddc"])  # whose programs are of an object of its own
def test_every_mode_names_a_program_that_exists_and_its_source(name: str):
    program = mode(name).program
    assert f"int {program}(" in (build.SOURCES / "switch.bpf.c").read_text()
    assert MODES[name].__doc__
