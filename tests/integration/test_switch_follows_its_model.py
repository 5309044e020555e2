"""Promises of the leaves' programs: packet by packet they pick what a model in plain Python picks, or the kernel's own oracle."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter

import pytest

from emu.fabric import queue
from emu.fabric.fabric import Fabric
from emu.fabric.wait import wait_until_empty
from emu.scale import Scale
from emu.switch.ecmp import Ecmp, EnhancedEcmp, fib_pick
from emu.switch.flow_table import FlowPath, FlowTable
from emu.switch.flowlet import Flowlet
from emu.switch.mode import Mode
from emu.switch.spray import Spray, SprayRandom, SprayRoundRobin
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, us
from tests.integration.switch_wire import ELIDED_BYTES, LeafRecorder, Passed, Sockets, random_packets

LEAF, LEAVES_UP, SERVERS = "leaf0", 3, 8
SOURCES, TARGETS = [nic(server, 0) for server in range(4)], [nic(server, 0) for server in range(4, 8)]
SIZES = [ELIDED_BYTES, ELIDED_BYTES, ELIDED_BYTES, 62, 90, 1500]
WAVES, WAVE_PACKETS, PAUSE_S = 6, 150, 0.02  # the pause is fabric time that passes, not a wait for something
GAP_NS = us(20)
SHALLOW_BYTES = 20_000


def make_fabric(buffer_bytes: int = mib(16)) -> Fabric:
    """Two leaves with four NICs each: what four send, three uplinks have to carry."""
    shape = SpineLeaf(servers=SERVERS, gpus_per_server=1, wiring="rail", leaf_down=4, leaf_up=LEAVES_UP, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=buffer_bytes))
    return Fabric(make_plan(shape.topology(), seed=7), Scale(dilation=100), elided=True)


def flow_paths() -> list[FlowPath]:
    """Three of four flows of every source; the fourth has none."""
    return [
        FlowPath(source=source, target=target, source_qp=100 + 10 * at + qp, target_qp=500 + 10 * at + qp,
                 uplink=Port(LEAF, f"up{(at + qp) % LEAVES_UP}"))
        for at, source in enumerate(SOURCES) for qp, target in enumerate(TARGETS[:3])
    ]


def observe(fabric: Fabric) -> list[Passed]:
    """Random packets from all servers of the leaf, in waves with a pause between, and what became of them."""
    sent = random_packets(SOURCES, TARGETS, WAVES * WAVE_PACKETS, seed=3, sizes=SIZES)
    with LeafRecorder(fabric, LEAF) as recorder, Sockets(fabric) as sockets:
        for wave in range(WAVES):
            for packet in sent[wave * WAVE_PACKETS : (wave + 1) * WAVE_PACKETS]:
                sockets.send(packet)
            time.sleep(PAUSE_S)
        wait_until_empty(lambda: queued(fabric), 10, "queues")
        passed = recorder.passed()
    assert len(passed) == len(sent), f"{len(passed)} of {len(sent)} packets came to the leaf"
    return passed


def queued(fabric: Fabric) -> list[str]:
    return [
        str(port) for node in (LEAF, *sorted({source.node for source in SOURCES})) for port, state in
        queue.read(fabric.netlink(node)).items() if state.queued_packets
    ]


@pytest.mark.needs_virtual_clock
def test_a_packet_that_finds_the_buffer_full_is_not_waited_for():
    """The program takes it for dropped, as the queue does: else a link would look busy with what it never got."""
    with make_fabric(buffer_bytes=SHALLOW_BYTES) as fabric, Spray().install(fabric) as lb:
        passed = observe(fabric)
        model = lb.model(LEAF)
        wanted = [Port(LEAF, f"up{model.pick(one.packet, tuple(range(LEAVES_UP)))}") for one in passed]
    dropped = sum(one.out is None for one in passed)
    assert dropped > 20, f"{dropped} packets dropped: no test"
    wrong = [(at, str(one.out), str(want)) for at, (one, want) in enumerate(zip(passed, wanted, strict=True))
             if one.out not in (None, want)]
    assert not wrong, f"{len(wrong)} of {len(passed)} packets, the first (number, out, wanted): {wrong[:3]}"


def fib(fabric: Fabric, passed: Passed) -> Port:
    port = next(own.port for own in fabric.ports.values() if own.ifindex == passed.packet.ifindex)
    source, target = (str(ipaddress.IPv4Address(address)) for address in (passed.packet.source, passed.packet.target))
    return fib_pick(fabric, port, source, target, passed.packet.udp_sport)


MODES = {
    "eecmp": EnhancedEcmp(), "path by qp": FlowTable(tuple(flow_paths())),
    "path by port": FlowTable(tuple(flow_paths()), match="udp_sport"), "spray": Spray(), "spray_random": SprayRandom(),
    "spray_rr": SprayRoundRobin(), "flowlet": Flowlet(GAP_NS),
}


@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_every_packet_leaves_by_the_uplink_that_the_model_picks(mode: Mode):
    with make_fabric() as fabric, mode.install(fabric) as lb:
        passed = observe(fabric)
        model, slots = lb.model(LEAF), tuple(range(LEAVES_UP))
        picked = [model.pick(one.packet, slots) for one in passed]
        wanted = [fib(fabric, one) if slot is None else Port(LEAF, f"up{slot}") for one, slot in zip(passed, picked, strict=True)]
        counters = lb.counters()
    wrong = [(at, str(one.out), str(want)) for at, (one, want) in enumerate(zip(passed, wanted, strict=True)) if one.out != want]
    assert not wrong, f"{len(wrong)} of {len(passed)} packets, the first (number, out, wanted): {wrong[:3]}"
    by_program = Counter(want for want, slot in zip(wanted, picked, strict=True) if slot is not None)
    got = {port: count for port, count in counters.packets.items() if count}
    assert got == by_program, f"counted {got}, picked {by_program}"
    assert counters.unknown[LEAF] == picked.count(None)
    if isinstance(mode, FlowTable):
        assert 0 < picked.count(None) < len(picked)
    assert len(set(wanted)) == LEAVES_UP, f"only {set(wanted)} used: no test"


@pytest.mark.needs_hash_seed
def test_the_kernel_s_ecmp_picks_what_its_route_lookup_says():
    with make_fabric() as fabric, Ecmp().install(fabric):
        passed = observe(fabric)
        wrong = [(str(one.out), str(fib(fabric, one))) for one in passed if one.out != fib(fabric, one)]
    assert not wrong, f"{len(wrong)} of {len(passed)} packets, the first (out, wanted): {wrong[0]}"
    assert len({one.out for one in passed}) == LEAVES_UP
