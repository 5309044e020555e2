"""Promises about the plan: every address once, all NICs connected over all shortest paths, the same every time."""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import TopologyError
from emu.topology import addressing, routing
from emu.topology.model import Port, nic
from emu.topology.plan import NodePlan, Plan, hash_seed, make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

MAX_HOPS = 8
SHAPES = {
    "one leaf": {"servers": 3, "gpus_per_server": 1, "wiring": "rail", "leaf_down": 3, "leaf_up": 0},
    "one group": {"servers": 3, "gpus_per_server": 2, "wiring": "rail", "leaf_down": 3, "leaf_up": 3},
    "two groups": {"servers": 4, "gpus_per_server": 2, "wiring": "rail", "leaf_down": 2, "leaf_up": 2},
    "a group half full": {"servers": 5, "gpus_per_server": 3, "wiring": "rail", "leaf_down": 4, "leaf_up": 2},
    "parallel uplinks": {
        "servers": 4,
        "gpus_per_server": 2,
        "wiring": "rail",
        "leaf_down": 2,
        "leaf_up": 4,
        "spines": 2,
    },
    "one spine": {"servers": 4, "gpus_per_server": 2, "wiring": "rail", "leaf_down": 2, "leaf_up": 1},
    "single-rail": {"servers": 6, "gpus_per_server": 2, "wiring": "single", "leaf_down": 4, "leaf_up": 2},
}


def plan_of(seed: int = 1, **description) -> Plan:
    return make_plan(
        SpineLeaf(rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(16)), **description).topology(), seed
    )


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def plan(request) -> Plan:
    return plan_of(**request.param)


def via(node: NodePlan, target: str) -> tuple[str, ...]:
    """Interfaces by which `node` sends to an address: connected /31 first, else the longest planned prefix."""
    for port in node.ports:
        if port.peer_address == target:
            return (port.port.ifname,)
    fitting = [
        r for r in node.routes if r.table == 254 and ipaddress.ip_address(target) in ipaddress.ip_network(r.prefix)
    ]
    return max(fitting, key=lambda r: ipaddress.ip_network(r.prefix).prefixlen).via if fitting else ()


def paths(plan: Plan, source: Port, target: Port) -> list[list[Port]]:
    """Every sequence of egress ports that the plan's routes allow from one NIC to another."""
    nodes = {node.name: node for node in plan.nodes}
    address = plan.ports[target].address
    done, open_ = [], [[source]]
    while open_:
        path = open_.pop()
        here = plan.ports[path[-1]].peer
        if here == target:
            done.append(path)
            continue
        assert len(path) < MAX_HOPS, f"{source} -> {target} loops: {[str(p) for p in path]}"
        hops = via(nodes[here.node], address)
        assert hops, f"{source} -> {target}: {here.node} has no route to {address}"
        open_ += [[*path, Port(here.node, ifname)] for ifname in hops]
    return done


def test_every_nic_reaches_every_other_over_the_planned_routes(plan):
    nics = [p for p in plan.ports if p.node.startswith("srv")]
    for source, target in itertools.permutations(nics, 2):
        if source.node != target.node:
            assert paths(plan, source, target), f"{source} -> {target}: no path"


def test_equal_cost_paths_are_all_there_and_all_shortest(plan):
    """Same leaf: one path of 2 links. Another leaf: every uplink, times the parallel links down from that spine."""
    uplinks = sum(1 for p in plan.ports if p.node == "leaf0" and p.ifname.startswith("up"))
    spines = len(plan.topology.switches_of("spine"))
    nics = [p for p in plan.ports if p.node.startswith("srv")]
    for source, target in itertools.permutations(nics, 2):
        if source.node == target.node:
            continue
        same_leaf = plan.ports[source].peer.node == plan.ports[target].peer.node
        found = paths(plan, source, target)
        want = (1, 2) if same_leaf else (uplinks * (uplinks // spines), 4)
        assert (len(found), {len(path) for path in found}) == (want[0], {want[1]}), f"{source} -> {target}"


def test_addresses_hardware_addresses_and_interface_numbers_are_unique_over_the_fabric(plan):
    for what in ("address", "mac", "ifindex"):
        values = [getattr(port, what) for port in plan.ports.values()]
        assert len(set(values)) == len(values), what


def test_both_ends_of_a_cable_share_a_31_and_know_each_other(plan):
    for port in plan.ports.values():
        peer = plan.ports[port.peer]
        assert peer.peer == port.port
        assert (port.peer_address, port.peer_mac) == (peer.address, peer.mac)
        assert (
            ipaddress.ip_interface(f"{port.address}/31").network == ipaddress.ip_interface(f"{peer.address}/31").network
        )


def test_queues_are_on_switch_ports_only(plan):
    for port in plan.ports.values():
        assert (port.queue is None) == port.port.node.startswith("srv"), port.port


def test_each_nic_of_a_server_has_a_routing_table_of_its_own(plan):
    for node in plan.nodes:
        if node.forwards:
            assert node.rail_tables == ()
            continue
        tables = [table for _, table in node.rail_tables]
        assert len(set(tables)) == len(node.ports) == len(tables)
        routed = {r.table: r.via for r in node.routes if r.table != 254}
        assert routed == {table: (port.port.ifname,) for port, table in node.rail_tables}


def test_a_leaf_of_many_has_one_multipath_default_route_and_a_spine_one_route_a_leaf():
    plan = plan_of(**SHAPES["two groups"])
    nodes = {node.name: node for node in plan.nodes}
    assert [(r.prefix, r.via) for r in nodes["leaf0"].routes] == [("0.0.0.0/0", ("up0", "up1"))]
    assert sorted(r.via for r in nodes["spine0"].routes) == [("down0",), ("down1",), ("down2",), ("down3",)]


hop_sets = st.lists(st.sampled_from(["up0", "up1", "up2"]), min_size=1, max_size=3, unique=True).map(tuple)


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), hop_sets, max_size=12))
def test_compressing_to_a_default_route_changes_no_next_hop(routes):
    default, exceptions = routing.with_default(routes)
    assert {target: exceptions.get(target, default) for target in routes} == routes
    assert len(exceptions) + (default is not None) <= len(routes)


def test_no_routes_need_no_default():
    assert routing.with_default({}) == (None, {})


def test_an_unreachable_switch_has_no_next_hop():
    adjacency = {"a": [("b", "up0", 1)], "b": [("a", "down0", 1)], "island": []}
    assert routing.next_hops(adjacency, ["a"]) == {"b": {"a": ("down0",)}}


def test_a_seed_gives_one_plan_and_another_seed_other_hash_seeds_only():
    first, again, other = (plan_of(seed, **SHAPES["two groups"]) for seed in (1, 1, 2))
    assert first == again
    assert all(a.hash_seed != b.hash_seed for a, b in zip(first.nodes, other.nodes, strict=True) if a.forwards)
    same = dataclasses.replace(
        other,
        seed=1,
        nodes=tuple(
            dataclasses.replace(node, hash_seed=was.hash_seed)
            for node, was in zip(other.nodes, first.nodes, strict=True)
        ),
    )
    assert same == first


def test_every_switch_has_a_hash_seed_of_its_own_in_32_bits_and_none_is_zero():
    seeds = [hash_seed(seed, f"{role}{i}") for seed in range(8) for role in ("leaf", "spine") for i in range(64)]
    assert all(0 < seed < 1 << 32 for seed in seeds)
    assert len(set(seeds)) == len(seeds)


def test_the_longest_frame_is_path_mtu_plus_every_roce_and_ethernet_header():
    """domain facts 1.1, 1.3: IPv4 20, UDP 8, BTH 12, RETH 16, immediate 4, iCRC 4; Ethernet 14."""
    plan = plan_of(**SHAPES["one leaf"])
    assert (plan.link_mtu_bytes, plan.frame_bytes) == (4096 + 64, 4096 + 64 + 14)


@pytest.mark.parametrize(("ports", "prefixlen"), [(1, 31), (2, 30), (3, 29), (64, 25), (65, 24)])
def test_an_access_prefix_holds_two_addresses_a_nic(ports, prefixlen):
    assert addressing.access_prefix(0, ports).prefixlen == prefixlen
    nics = [addressing.nic_pair(addressing.access_prefix(3, ports), place) for place in range(ports)]
    network = addressing.access_prefix(3, ports)
    assert all(ipaddress.ip_address(address) in network for pair in nics for address in pair)


def test_prefixes_of_neighbouring_leaves_do_not_overlap():
    assert not addressing.access_prefix(0, 64).overlaps(addressing.access_prefix(1, 64))


def test_more_leaves_or_cables_than_the_address_plan_holds_are_refused():
    with pytest.raises(TopologyError, match="does not fit 10.0.0.0/8; use fewer or smaller leaves"):
        addressing.access_prefix(1 << 17, 64)
    with pytest.raises(TopologyError, match="does not fit 172.16.0.0/12"):
        addressing.fabric_pair(1 << 19)


def test_the_plan_of_8192_gpus_numbers_every_port():
    plan = plan_of(servers=1024, gpus_per_server=8, wiring="rail", leaf_down=64, leaf_up=64)
    assert (len(plan.nodes), len(plan.ports)) == (1024 + 128 + 64, 2 * 16384)
    assert len({port.address for port in plan.ports.values()}) == len(plan.ports)
    assert plan.ports[nic(1023, 7)].peer == Port("leaf127", "down63")


@given(st.lists(hop_sets, min_size=1, max_size=20), st.integers(0, 5))
def test_aggregated_routes_lead_every_prefix_where_it_led_and_cover_no_other(via_of_place, first):
    prefixes = [str(addressing.access_prefix(first + place, 3)) for place in range(len(via_of_place))]
    routes = dict(routing.aggregated(dict(zip(prefixes, via_of_place, strict=True))))
    assert routing.lookup(routes, prefixes) == via_of_place
    outside = [str(addressing.access_prefix(place, 3)) for place in (*range(first), first + len(prefixes), 40)]
    assert not any(routing.lookup(routes, outside)), f"{routes} leads to one of {outside} too"
    assert len(routes) <= len(prefixes)


def test_neighbouring_prefixes_with_the_same_next_hops_are_one_route_up_to_the_next_power_of_two():
    routes = {f"10.0.0.{8 * place}/29": ("up0",) if place < 4 else ("up1",) for place in range(7)}
    merged = {"10.0.0.0/27": ("up0",), "10.0.0.32/28": ("up1",), "10.0.0.48/29": ("up1",)}
    assert dict(routing.aggregated(routes)) == merged


def test_the_longest_prefix_decides_and_the_default_takes_the_rest():
    routes = {"0.0.0.0/0": ("up0",), "10.0.0.0/24": ("up1",), "10.0.0.8/29": ("up2",)}
    assert routing.lookup(routes, ["10.0.0.8/29", "10.0.0.16/29", "10.0.1.0/29"]) == [("up2",), ("up1",), ("up0",)]
