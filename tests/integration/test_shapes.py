"""Promises of fat trees, tori and dragonflies alive: every server reaches every other in the planned hops, no byte is lost."""

from __future__ import annotations

import errno
import itertools
import socket
from contextlib import ExitStack

import pytest

from emu.fabric import netns
from emu.fabric.fabric import Fabric
from emu.measure.hops import Hops
from emu.measure.transfers import run_messages
from emu.nic.messages import from_pairs
from emu.nic.transport import Transport
from emu.scale import Scale, for_virtual_clock
from emu.switch.ecmp import Ecmp, fib_pick
from emu.topology.dragonfly import Dragonfly, DragonflyPlus
from emu.topology.even_split import EvenSplit
from emu.topology.fat_tree import FatTree
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.torus import Torus
from emu.units import gbps, mib

pytestmark = pytest.mark.needs_virtual_clock
COMMON = {"rate_bps": gbps(400), "queue": QueueProfile(buffer_bytes=mib(16))}
SHAPES = {
    "fat tree": FatTree(**COMMON, gpus_per_server=1, radix=4),
    "fat tree, 3:1": FatTree(**COMMON, gpus_per_server=3, radix=4, edge_up=1),
    "torus 4x3": Torus(**COMMON, gpus_per_server=1, dims=(4, 3), node_gpus=1),
    "torus 2x2x2": Torus(**COMMON, gpus_per_server=2, dims=(2, 2, 2), node_gpus=2),
    "dragonfly": Dragonfly(**COMMON, gpus_per_server=1, groups=5, routers=2, router_gpus=2, global_ports=2),
    "dragonfly, 2 cables a pair": Dragonfly(**COMMON, gpus_per_server=1, groups=3, routers=4, router_gpus=1, global_ports=1),
    "dragonfly+": DragonflyPlus(**COMMON, gpus_per_server=2, groups=3, leaves=2, leaf_gpus=2, spines=2, global_ports=2),
}
FLOWS, FIRST_PORT = 128, 49152  # of so many flows each of at most 8 ways gets one, but for 1 in 10 million times
PORT, IP_RECVERR = 9000, 11  # linux/in.h
QPS, SIZE_BYTES = 2, 64 << 10


@pytest.fixture(scope="module", params=SHAPES, ids=lambda name: name.replace(" ", "_"))
def live(request):
    """(description, fabric), one for all tests of it."""
    shape = SHAPES[request.param]
    plan = make_plan(shape.topology(), seed=1)
    with Fabric(plan, Scale(dilation=for_virtual_clock(plan.fastest_bps, plan.frame_bytes)), elided=True) as fabric:
        yield shape, fabric


def test_a_packet_reaches_every_server_with_the_ttl_of_the_planned_path_and_dies_at_the_last_switch_with_one_less(live):
    _, fabric = live
    split, servers = EvenSplit(fabric.plan), [nic(number, 0) for number in range(len(fabric.plan.topology.servers))]
    with ExitStack() as closing:
        receiving = {target: closing.enter_context(udp(fabric, target)) for target in servers}
        for source, target in itertools.permutations(servers, 2):
            switches = 1 + round(sum(split.shares(source, target).values()))
            with udp(fabric, source, PORT + 1, ttl=switches + 1) as sender:
                sender.sendto(str(source).encode(), (fabric.ports[target].address, PORT))
                got = receiving[target].recv(64).decode()  # or a timeout, after a second of the virtual clock
            assert got == str(source), f"{target} got {got!r}, want {str(source)!r}"
            with udp(fabric, source, PORT + 1, ttl=switches) as sender, pytest.raises(OSError) as died:
                sender.connect((fabric.ports[target].address, PORT))
                sender.send(b"too far")
                sender.recv(64)
            assert died.value.errno == errno.EHOSTUNREACH, f"{source} to {target}, TTL {switches}: {died.value}"


def udp(fabric: Fabric, port: Port, number: int = PORT, ttl: int = 64) -> socket.socket:
    """At a NIC's address; a TTL that ran out on the way is an error of its next call."""
    with netns.inside(netns.name_of(fabric.run_id, port.node)):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
    found.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    found.bind((fabric.ports[port].address, number))
    found.settimeout(1)
    return found


def test_flows_take_every_planned_way_at_every_switch_and_no_other(live):
    """From the first NIC to the last of each other switch, followed hop by hop through the kernels' own routes."""
    _, fabric = live
    split, first = EvenSplit(fabric.plan), nic(0, 0)
    for links in list(fabric.plan.topology.access_links.values())[1:]:
        target, taken = links[-1].a, set()
        for flow in range(FLOWS):
            taken |= set(followed(fabric, first, target, FIRST_PORT + flow))
        planned = set(split.shares(first, target))
        assert taken == planned, f"{first} to {target}: took {sorted(map(str, taken))}, planned {sorted(map(str, planned))}"


def followed(fabric: Fabric, source: Port, target: Port, udp_sport: int):
    """The ports between switches that a flow goes out by."""
    addresses, at = [fabric.ports[port].address for port in (source, target)], fabric.ports[source].peer
    while True:
        out = fib_pick(fabric, at, *addresses, udp_sport)
        at = fabric.ports[out].peer
        if at == target:
            return
        yield out


def test_all_to_all_traffic_arrives_over_as_many_cables_as_the_closed_form_says_and_nothing_vanishes(live):
    shape, fabric = live
    nics = [nic(server, gpu) for server, node in enumerate(fabric.plan.topology.servers) for gpu in range(node.gpus)]
    messages = from_pairs(itertools.permutations(nics, 2), SIZE_BYTES, QPS)
    with Ecmp().install(fabric):
        transferred = run_messages(fabric, messages, Transport(transport="sr", cc="none", window_packets=8))
    failed = [check for check in transferred.checks() if not check.ok]
    assert not failed, failed
    hops, closed = Hops(transferred), float(shape.figures.mean_hops)
    assert hops.planned_mean == pytest.approx(closed, rel=1e-9), f"routes {hops.planned_mean}, closed form {closed}"
    assert hops.mean == pytest.approx(closed, rel=1e-3), f"measured {hops.mean}, closed form {closed}"
    sent = {port: transferred.delta[port].sent_bytes for port in hops.planned_loads}
    idle = [str(port) for port, size in sent.items() if size < SIZE_BYTES / QPS]
    assert not idle, f"planned ports without as much as one flow: {idle}"


def test_a_shift_by_a_group_starves_a_dragonfly_to_its_one_cable_and_not_a_fat_tree(run_scenario):
    """Kim et al., 4.1: minimal routing gives a whole group that sends to one other the bandwidth of one cable."""
    settings = ("gpus=32", "global_ports=1", "topology=fat_tree,dragonfly", "traffic=shift", "size_bytes=1MiB")
    exit_code, result = run_scenario("topologies", *settings)
    assert exit_code == 0, f"exit {exit_code}: {[check.name for check in result.failed_checks]}, {result.rows}"
    load = {row["topology"]: row["planned_load"] for row in result.rows}
    assert load == pytest.approx({"fat_tree": 1, "dragonfly": 8}), f"busiest cable over NIC: {load}"
    reached = {row["topology"]: row["busbw_fraction"] for row in result.rows}
    assert 0.95 / 8 <= reached["dragonfly"] <= 1.005 / 8 < 1 / 4 < reached["fat_tree"], f"of line rate: {reached}"
