"""Promises of the eBPF NIC's transport: every message completes whatever the links do, and each packet is placed once."""

from __future__ import annotations

import subprocess

import pytest

from emu.fabric.fabric import Fabric
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import CLEAR_TO_SEND_BYTES, Message, with_credit
from emu.roce.psn import packets_of_message
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, us

SERVERS, GPUS, MTU_BYTES = 4, 2, 4096
SIZES = (mib(1), 100, mib(2) + 5, MTU_BYTES, MTU_BYTES + 1, 1)
LIMIT_S = 20
IMPAIRMENTS = {
    "nothing": "loss 0%",
    "loss 0.1 %": "loss 0.1%",
    "loss 1 %": "loss 1%",
    "loss 5 %": "loss 5%",
    "duplication": "duplicate 5%",
    "reordering": "delay 100us 90us",
    "all at once": "loss 1% duplicate 2% delay 50us 40us",
}


def make_fabric(elided: bool = True) -> Fabric:
    """Two groups of leaves: half of the messages cross a spine."""
    shape = SpineLeaf(servers=SERVERS, gpus_per_server=GPUS, wiring="rail", leaf_down=2, leaf_up=2, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=mib(16)))
    return Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=100), elided=elided)


def impair(fabric: Fabric, how: str) -> None:
    """Below the rate limit of every switch port, so on each hop."""
    for node in fabric.plan.nodes:
        for port in node.ports if node.forwards else ():
            add = ["tc", "-n", fabric.netlink(node.name).netns, "qdisc", "add", "dev", port.port.ifname, "parent", "1:1"]
            done = subprocess.run([*add, "netem", "limit", "100000", *how.split()], capture_output=True, text=True, timeout=30)
            assert done.returncode == 0, done.stderr


def ring() -> list[Message]:
    """Right neighbours, message by message, each after its receiver's clear-to-send."""
    return with_credit([
        Message(source=nic(server, gpu), target=nic((server + 1) % SERVERS, gpu), size_bytes=size)
        for size in SIZES for server in range(SERVERS) for gpu in range(GPUS)
    ])


@pytest.mark.needs_netem
@pytest.mark.parametrize("transport", ["sr", "gbn"])
@pytest.mark.parametrize("how", IMPAIRMENTS.values(), ids=IMPAIRMENTS.keys())
def test_every_message_completes_with_exact_bytes_each_address_once(transport, how):
    messages = ring()
    with make_fabric() as fabric:
        impair(fabric, how)
        with Engine(fabric, messages, Transport(transport=transport, rto_ns=us(50))) as engine:
            outcome = engine.run(LIMIT_S)
            ends, done = engine.ends(), engine.done_ns()
        assert outcome.left == 0, f"{outcome.left} of {len(messages)} messages not complete after {LIMIT_S} s"
        assert all(done), f"{done.count(0)} messages have no time of completion"
        for (own, peer, channel), qp in ends.items():
            sizes = [m.size_bytes for m in messages if (m.source, m.target, m.channel) == (peer, own, channel)]
            wanted = (sum(sizes), sum(packets_of_message(size, MTU_BYTES) for size in sizes), 0)
            got = (qp.placed_bytes, qp.placed_packets, qp.misplaced_packets)
            assert got == wanted, f"{peer} to {own}: bytes, packets, misplaced {got}, want {wanted}"
        resent = sum(qp.resent_packets for qp in ends.values())
        if how == IMPAIRMENTS["nothing"]:
            assert resent == 0, f"{resent} packets sent again though none was lost"
        if "loss 1%" in how or "loss 5%" in how:
            assert resent > 0, "netem lost nothing: no test"


@pytest.mark.needs_netem
def test_selective_repeat_sends_little_more_than_what_was_lost():
    with make_fabric() as fabric:
        impair(fabric, "loss 1%")
        with Engine(fabric, ring(), Transport(transport="sr", rto_ns=us(50))) as engine:
            engine.run(LIMIT_S)
            ends = engine.ends().values()
    sent, resent = (sum(getattr(qp, name) for qp in ends) for name in ("sent_packets", "resent_packets"))
    assert resent / sent < 0.05, f"{resent} of {sent} packets were repairs; up to four hops at 1 % lose 4 %"


@pytest.mark.needs_root
def test_credit_comes_before_data_and_data_waits_for_what_it_depends_on():
    first = Message(source=nic(0, 0), target=nic(1, 0), size_bytes=mib(1))
    second = Message(source=nic(1, 1), target=nic(2, 1), size_bytes=50_000, after=(0,))
    messages = with_credit([first, second])
    assert [m.size_bytes for m in messages] == [CLEAR_TO_SEND_BYTES, mib(1), CLEAR_TO_SEND_BYTES, 50_000]
    with make_fabric() as fabric, Engine(fabric, messages, Transport()) as engine:
        outcome = engine.run(LIMIT_S)
        credit, data, next_credit, next_data = engine.done_ns()
    assert outcome.left == 0
    assert credit < data < next_data and next_credit < next_data, f"{credit} {data} {next_credit} {next_data}"


@pytest.mark.needs_root
def test_a_queue_pair_takes_at_most_512_bytes_and_two_million_requests_fit():
    from emu.bpf import build, layout

    maps = layout.read_maps(build.object_path("nic"))
    assert maps["nic_qps"].value.size <= 512, f"{maps['nic_qps'].value.size} bytes"
    assert maps["nic_windows"].value.size == 2 * 1024 // 8
    with make_fabric() as fabric:
        requests = fabric.bpf().load("nic").map("nic_requests")
        requests.write_from(2_000_000, requests.layout.value.pack(bytes=7))
        assert requests.read(2_000_000).bytes == 7
