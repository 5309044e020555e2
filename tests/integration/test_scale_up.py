"""Promises of scale-up domains as real links: what a pair and all pairs get, how late, and rails beside them undisturbed."""

from __future__ import annotations

import pytest

from emu.fabric.fabric import Fabric
from emu.measure.scale_up import all_pairs, bulk, latencies
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.scale_up import KINDS, ScaleUp, scale_up_alone, with_scale_up
from emu.topology.scale_up_profiles import profile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

pytestmark = pytest.mark.needs_netem  # and with it, in the lab kernel, the virtual clock
JOINED = KINDS[1:]
GOODPUT = 4096 / 4174  # payload over frame
DILATION, LIMIT_S = 1000, 30
TRANSPORT = Transport(window_packets=1024, rto_ns=2_000_000)
ACCESS = ("accesses=1500", "access_bytes=64")


def described(kind: str, **changes) -> ScaleUp:
    """NVLink 4: 450 GB/s one way."""
    return ScaleUp(kind=kind, technology=profile("nvlink4"), **{"gpus_per_server": 4, "domain_gpus": 8} | changes)


def alone(scale_up: ScaleUp, mtu_bytes: int = 4096) -> Fabric:
    servers = scale_up.domain_gpus // scale_up.gpus_per_server
    return Fabric(make_plan(scale_up_alone(servers, scale_up, mtu_bytes), seed=1), Scale(dilation=DILATION), elided=True)


def rows_of(run_scenario, name, *settings):
    exit_code, result = run_scenario(name, *settings)
    assert result.valid, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return result.rows


@pytest.mark.parametrize(("kind", "share"), [("full_mesh", 1 / 7), ("hybrid_mesh", 1 / 4), ("switch", 1), ("two_tier_switch", 1)])
def test_a_mesh_limits_a_pair_to_its_cable_and_a_switch_does_not(kind, share):
    scale_up = described(kind)
    with alone(scale_up) as fabric:
        for pair in ((0, 1), (0, 7), (7, 2)):
            moved = bulk(fabric, scale_up, [pair], mib(8), TRANSPORT)
            assert not moved.transferred.outcome.left
            got, want = moved.pair_gbytes(pair), 450 * GOODPUT * share
            assert abs(got / want - 1) <= 0.005, f"GPUs {pair}: {got:.2f} GB/s, want {want:.2f}"


@pytest.mark.parametrize("kind", ["full_mesh", "switch"])
@pytest.mark.parametrize("gpus_per_server", [8, 4, 1])
def test_a_domain_is_the_same_within_one_operating_system_as_across_eight(kind, gpus_per_server):
    scale_up = described(kind, gpus_per_server=gpus_per_server)
    with alone(scale_up) as fabric:
        small = latencies(fabric, scale_up, 64, TRANSPORT)
        moved = bulk(fabric, scale_up, [(0, 7)], mib(4), TRANSPORT)
    want_ns, want = (150, 450 * GOODPUT / 7) if kind == "full_mesh" else (400, 450 * GOODPUT)
    off = {pair: ns for pair, ns in small.one_way_ns.items() if abs(ns - want_ns) > 0.1}
    assert len(small.one_way_ns) == 56 and not off, f"want {want_ns} ns: {off}"
    assert abs(moved.pair_gbytes((0, 7)) / want - 1) <= 0.005, f"{moved.pair_gbytes((0, 7)):.2f} GB/s, want {want:.2f}"


@pytest.mark.parametrize("kind", JOINED)
def test_every_latency_is_what_links_and_switches_of_the_way_add_up_to(kind):
    scale_up = described(kind)
    with alone(scale_up) as fabric:
        found = latencies(fabric, scale_up, 256, TRANSPORT)
    for pair in all_pairs(scale_up):
        want_ns = scale_up.one_way_ns(*pair)
        assert abs(found.one_way_ns[pair] - want_ns) <= 0.2, f"{pair}: {found.one_way_ns[pair]} ns, want {want_ns}"
        assert abs(found.round_trip_ns[pair] - 2 * want_ns) <= 0.4, f"{pair}: {found.round_trip_ns[pair]} ns and back"


def test_a_thousand_connections_that_wait_for_their_turn_hold_up_none_that_has_it():
    scale_up = described("switch", gpus_per_server=24, domain_gpus=24)
    with alone(scale_up) as fabric:
        found = latencies(fabric, scale_up, 64, TRANSPORT)
    late = {pair: ns for pair, ns in found.round_trip_ns.items() if ns > 800.4}
    assert len(found.round_trip_ns) == 24 * 23 and not late, f"{len(late)} round trips took more than 800 ns: {late}"


@pytest.mark.parametrize("kind", ["switch", "two_tier_switch"])
def test_planes_of_switches_carry_together_what_one_would(kind):
    scale_up = described(kind, planes=2)
    with alone(scale_up) as fabric:
        moved = bulk(fabric, scale_up, [(0, 7)], mib(8), TRANSPORT)
    delta = moved.transferred.delta
    sent = {port: counts.sent_packets for port, counts in delta.items() if str(port).startswith("srv0:nv0p")}
    assert len(sent) == 2 and len(set(sent.values())) == 1, f"planes used unevenly: {sent}"
    assert abs(moved.pair_gbytes((0, 7)) / (450 * GOODPUT) - 1) <= 0.005, f"{moved.pair_gbytes((0, 7)):.1f} GB/s"


def test_all_pairs_have_the_whole_bandwidth_but_for_the_halves_of_a_hybrid_mesh(run_scenario):
    rows = rows_of(run_scenario, "scale_up", "technology=nvlink4", "size_bytes=4MiB")
    share = {row["scale_up"]: row["all_share"] for row in rows}
    assert share["hybrid_mesh"] <= 7 / 16, f"{share['hybrid_mesh']:.1%}: more than the cables between the halves carry"
    assert min(share[kind] for kind in ("full_mesh", "switch", "two_tier_switch")) >= 0.75, share


def test_under_a_microsecond_is_held_or_not_as_the_technology_and_the_tiers_make_it(run_scenario):
    rows = rows_of(run_scenario, "scale_up", "technology=nvlink4,sue", "scale_up=switch,two_tier_switch", "size_bytes=1MiB")
    held = {(row["scale_up"], row["technology"]): (row["one_way_max_ns"], row["under_1us"]) for row in rows}
    assert {key: value[1] for key, value in held.items()} == {
        ("switch", "nvlink4"): True, ("switch", "sue"): True,
        ("two_tier_switch", "nvlink4"): True, ("two_tier_switch", "sue"): False,
    }, held


def test_accesses_wait_longer_for_a_slow_cable_than_for_a_fast_switch_and_only_under_load(run_scenario):
    rows = rows_of(run_scenario, "memory_access", "access=write", "load=0.1,0.9", "accesses=2500", "access_bytes=256")
    waits = {(row["scale_up"], row["load"]): row["p99_ns"] - row["idle_min_ns"] for row in rows}
    assert max(waits["full_mesh", 0.1], waits["switch", 0.1]) <= 5, f"99th percentile over idle links, ns: {waits}"
    assert waits["full_mesh", 0.9] > 3 * waits["switch", 0.9] > 0, waits
    for row in rows:
        assert abs(row["load_measured"] / row["load"] - 1) <= 0.05, (row["scale_up"], row["load"], row["load_measured"])


def test_a_read_takes_two_ways_and_a_write_one(run_scenario):
    rows = rows_of(run_scenario, "memory_access", *ACCESS, "load=0.1", "scale_up=switch")
    assert {row["access"]: round(row["p50_ns"]) for row in rows} == {"read": 800, "write": 400}


def test_two_runs_of_a_seed_are_the_same_to_the_digit_and_of_another_seed_not(run_scenario):
    settings = (*ACCESS, "load=0.5", "scale_up=full_mesh", "access=read")
    first, again = (rows_of(run_scenario, "memory_access", *settings) for _ in range(2))
    _, other = run_scenario("memory_access", *settings, seed=2)
    assert first == again and first != other.rows


def rails_and_domain(kind: str) -> Fabric:
    queue = QueueProfile(buffer_bytes=mib(16), ecn=EcnProfile(kmin_bytes=800_000, kmax_bytes=3_200_000, pmax=0.2))
    cluster = SpineLeaf(servers=2, gpus_per_server=4, wiring="rail", leaf_down=2, leaf_up=2, rate_bps=gbps(400), queue=queue)
    return Fabric(make_plan(with_scale_up(cluster.topology(), described(kind)), seed=1), Scale(dilation=DILATION), elided=True)


@pytest.mark.needs_red
@pytest.mark.parametrize("kind", ["full_mesh", "switch"])
def test_rails_and_domain_work_at_once_each_at_its_own_rate(kind):
    scale_up = described(kind)
    (source, target), = scale_up.hops(0, 5)
    ends = ((nic(0, 0), nic(1, 0)), (source, target))
    messages = [Message(source=source, target=target, size_bytes=mib(4)) for source, target in ends]
    with rails_and_domain(kind) as fabric, Engine(fabric, messages, TRANSPORT) as engine:
        outcome, done = engine.run(LIMIT_S), engine.done_ns()
        first_ns = engine.progress().first_ns
    assert not outcome.left
    rates = [mib(4) / (ns - first_ns) * DILATION for ns in done]
    wanted = [50 * GOODPUT, 450 * GOODPUT / (7 if kind == "full_mesh" else 1)]
    off = [rate / want - 1 for rate, want in zip(rates, wanted, strict=True)]
    assert all(-0.1 <= one <= 0.002 for one in off), f"GB/s {rates}, want up to {wanted}"


@pytest.mark.needs_red
def test_the_host_stack_reaches_a_rail_by_rails_and_a_domain_by_its_ports():
    """Both ways of one server: from a NIC's address to a NIC, from a domain port's address to a domain port, and not crossed."""
    with rails_and_domain("switch") as fabric:
        address = {str(port): plan.address for port, plan in fabric.ports.items()}
        for source, target, reached in (
            ("srv0:rail1", "srv1:rail1", True), ("srv0:rail0", "srv1:rail3", True), ("srv0:nv0", "srv1:nv3", True),
            ("srv0:rail0", "srv1:nv3", False), ("srv0:nv0", "srv1:rail3", False),
        ):
            said = fabric.get("srv0").cmd(f"ping -n -c 1 -W 2 -I {address[source]} {address[target]}")
            assert (" 0% packet loss" in said) is reached, f"{source} to {target}, want reached: {reached}: {said}"
