"""Promises of the controller of path navigation that need no kernel: what is reported, both ways of a path, dead cables."""

from __future__ import annotations

from random import Random

import pytest

from emu.errors import TopologyError
from emu.nic.traffic import PATTERNS, Size
from emu.nic.controller import PathController
from emu.nic.work_request import Message, with_credit
from emu.topology.model import Link, Port, Server, Switch, Topology, nic
from emu.topology.plan import Plan, make_plan, routes_without
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

LEAVES, PER_LEAF, QPS = 4, 4, 2
QUEUE = QueueProfile(buffer_bytes=mib(1))


def fabric_plan() -> Plan:
    shape = SpineLeaf(servers=LEAVES * PER_LEAF, gpus_per_server=1, wiring="single", leaf_down=PER_LEAF, leaf_up=PER_LEAF,
                      rate_bps=gbps(400), queue=QUEUE)
    return make_plan(shape.topology(), seed=1)


PLAN = fabric_plan()


def permutation() -> list[Message]:
    return PATTERNS["permutation"](PLAN.topology, Size(mib(1), QPS, 2), Random(1))


def cable(name: str) -> Link:
    return next(link for link in PLAN.topology.links if Port.parse(name) in (link.a, link.b))


def test_a_permutation_is_promised_as_evenly_as_can_be_and_every_end_gets_its_path():
    controller = PathController(PLAN, permutation())
    navigation = controller.navigation
    assert navigation.max_bytes == navigation.bound_bytes == mib(1), f"{navigation.max_bytes} bytes on the busiest link"
    assert len(controller.mode.paths) == 2 * len(navigation.paths) == 2 * LEAVES * PER_LEAF * QPS


def test_acknowledgements_come_back_the_way_of_the_data():
    """The way back goes up its own leaf by the cable over which the data came down: uplinks have one number at both ends."""
    paths = {(path.source, path.source_qp): path for path in PathController(PLAN, permutation()).mode.paths}
    for path in paths.values():
        back = paths[path.target, path.target_qp]
        assert (back.target, back.target_qp) == (path.source, path.source_qp)
        assert back.uplink.ifname == path.uplink.ifname, f"{path} comes back by {back.uplink}"
        assert path.uplink.node == PLAN.ports[path.source].peer.node, f"{path.uplink} is no uplink of {path.source}"


def test_a_direction_with_credits_only_is_no_flow_of_its_own():
    plain, credited = (PathController(PLAN, messages) for messages in (permutation(), with_credit(permutation())))
    pairs = [sorted(str(c.key[:2]) for c in told.connections) for told in (plain, credited)]  # credits renumber the channels
    assert pairs[0] and pairs[0] == pairs[1]
    both_ways = [*permutation(), *(Message(source=m.target, target=m.source, size_bytes=m.size_bytes, channel=m.channel)
                                   for m in permutation())]
    assert len(PathController(PLAN, both_ways).connections) == 2 * len(plain.connections)


def test_small_messages_without_an_answer_are_flows():
    only = PathController(PLAN, [Message(source=nic(0, 0), target=nic(4, 0), size_bytes=64)])
    assert [connection.size_bytes for connection in only.connections] == [64]


def test_flows_under_one_leaf_are_told_no_path():
    controller = PathController(PLAN, [Message(source=nic(0, 0), target=nic(1, 0), size_bytes=mib(1))])
    assert controller.connections and not controller.mode.paths and not controller.navigation.paths


def test_messages_of_one_connection_are_one_flow_with_their_sum():
    twice = PathController(PLAN, [*permutation(), *permutation()])
    assert {connection.size_bytes for connection in twice.connections} == {2 * mib(1) // QPS}


def test_only_flows_over_a_dead_cable_move_and_they_come_back_to_the_bound_when_it_does():
    controller = PathController(PLAN, permutation())
    before = dict(controller.navigation.paths)
    leaf = {nic: port.peer.node for nic, port in PLAN.ports.items()}
    hit = {key for key, path in before.items() if path.uplink == 1 and "leaf2" in (leaf[key[0]], leaf[key[1]])}
    controller.reroute(routes_without(PLAN, [cable("leaf2:up1")]))
    assert controller.uplinks.failed == {("leaf2", 1)}
    moved = {key for key, path in controller.navigation.paths.items() if before[key] != path}
    found = f"{len(hit - moved)} of {len(hit)} flows still on the dead cable, {len(moved - hit)} others moved"
    assert hit and hit == moved, found
    assert controller.moved == len(moved) == len(controller.navigation.moved)
    # one leaf has eight flows and three uplinks
    assert controller.navigation.max_bytes == controller.navigation.bound_bytes == 3 * mib(1) // QPS
    controller.reroute(routes_without(PLAN, []))
    assert not controller.uplinks.failed
    assert controller.navigation.max_bytes == mib(1), f"{controller.navigation.max_bytes} bytes after the repair"


def test_what_the_cables_ends_report_first_is_enough_and_news_of_nothing_moves_nothing():
    """A switch that loses a port says so at once, the others later: the controller needs the leaf's word only."""
    early, whole = PathController(PLAN, permutation()), PathController(PLAN, permutation())
    routes = routes_without(PLAN, [cable("leaf2:up1")])
    early.reroute({"leaf2": routes["leaf2"]})
    whole.reroute(routes)
    assert early.uplinks.failed == {("leaf2", 1)} and early.navigation.paths == whole.navigation.paths
    moved = early.moved
    early.reroute({name: route for name, route in routes.items() if name != "leaf2"})
    assert early.moved == moved, f"{early.moved - moved} flows moved by news of nothing"


def test_a_fabric_whose_leaves_differ_is_refused_with_what_else_would_do():
    links = [Link(a=nic(k, 0), b=Port(f"leaf{k}", "down0"), rate_bps=gbps(400)) for k in range(2)]
    links += [Link(a=Port(f"leaf{k}", "up0"), b=Port("spine0", f"down{k}"), rate_bps=gbps(400)) for k in range(2)]
    links.append(Link(a=Port("leaf0", "up1"), b=Port("spine1", "down0"), rate_bps=gbps(400)))
    switches = tuple(Switch(name=name, role=name[:-1], radix=8) for name in ("leaf0", "leaf1", "spine0", "spine1"))
    uneven = Topology(name="uneven", servers=tuple(Server(name=f"srv{k}", gpus=1) for k in range(2)), switches=switches,
                      links=tuple(links), queue=QUEUE)
    with pytest.raises(TopologyError) as error:
        PathController(make_plan(uneven, seed=1), [Message(source=nic(0, 0), target=nic(1, 0), size_bytes=mib(1))])
    assert "use lb=ecmp or spray here" in str(error.value)
