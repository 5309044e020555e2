"""Promises of the eBPF NIC's congestion control: it paces what it says, shares fairly, and keeps the queue under Kmax."""

from __future__ import annotations

import time

import pytest

from emu.fabric.depth import DepthProbe
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.nic.engine import Engine
from emu.nic.transport import Dcqcn, Transport
from emu.nic.work_request import Message
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, ms, us

pytestmark = pytest.mark.needs_red  # and with it, in the lab kernel, fq and the virtual clock

MTU_BYTES, FRAME_BYTES, RATE_BPS, DILATION = 4096, 4174, gbps(400), 100
ECN = EcnProfile(kmin_bytes=800_000, kmax_bytes=3_200_000, pmax=0.2)  # SimAI's at 400 Gb/s
LIMIT_S = 60
MESSAGE_BYTES = mib(512)


def make_fabric(senders: int) -> Fabric:
    shape = SpineLeaf(servers=senders + 1, gpus_per_server=1, wiring="rail", leaf_down=senders + 1, leaf_up=0,
                      rate_bps=RATE_BPS, queue=QueueProfile(buffer_bytes=mib(16), ecn=ECN))
    return Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=DILATION), elided=True, paced=True)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.013])
def test_pacing_holds_a_rate_within_two_percent_over_100_packets(share):
    fixed = Dcqcn(rate_start=share, rise_additive=0, rise_hyper=0)
    messages = [Message(source=nic(1, 0), target=nic(0, 0), size_bytes=100 * MTU_BYTES) for _ in range(6)]
    with make_fabric(1) as fabric, Engine(fabric, messages, Transport(cc="dcqcn", dcqcn=fixed, rto_ns=ms(50))) as engine:
        assert fabric.paced, "this kernel has no fq"
        outcome, done = engine.run(LIMIT_S), engine.done_ns()
    assert outcome.left == 0
    wanted_ns = 100 * FRAME_BYTES * 8e9 / (share * RATE_BPS) * DILATION
    for before, after in zip(done, done[1:], strict=False):
        off = (after - before) / wanted_ns - 1
        assert abs(off) <= 0.02, f"100 packets at {share:.1%} of the line took {after - before} ns, {off:+.2%}, allowed ±2 %"


def test_one_flow_alone_has_the_whole_line_and_no_cnp():
    messages = [Message(source=nic(1, 0), target=nic(0, 0), size_bytes=mib(32))]
    with make_fabric(1) as fabric, Engine(fabric, messages, Transport(cc="dcqcn", rto_ns=ms(5))) as engine:
        outcome, ends = engine.run(LIMIT_S), engine.ends()
    goodput = mib(32) * 8e9 * DILATION / outcome.elapsed_ns
    assert goodput >= 0.97 * RATE_BPS * MTU_BYTES / FRAME_BYTES, f"{goodput / 1e9:.1f} Gb/s"
    assert sum(qp.cnps_sent for qp in ends.values()) == 0


@pytest.mark.parametrize(("flows", "messages_each"), [(2, 4), (8, 4)])
def test_flows_share_a_bottleneck_within_ten_percent_and_stay_under_kmax(flows, messages_each):
    """Shares and depth after the first quarter, when rates have converged. Marks come at random, so that a flow's share
    of a few ms is off by a fifth; hundreds of ms of fabric time tell what it is on average."""
    each_bytes = messages_each * MESSAGE_BYTES
    messages = [Message(source=nic(1 + flow, 0), target=nic(0, 0), size_bytes=MESSAGE_BYTES)
                for _ in range(messages_each) for flow in range(flows)]
    samples: list[tuple[int, int, list[int]]] = []
    with make_fabric(flows) as fabric, Engine(fabric, messages, Transport(cc="dcqcn", rto_ns=ms(5))) as engine:
        port = fabric.ports[nic(0, 0)].peer
        with Netlink(fabric.netlink(port.node).netns) as netlink:
            depth = DepthProbe(netlink, fabric.ports[port].ifindex)

            def sample() -> None:
                placed = [qp.placed_bytes for (own, _, _), qp in engine.ends().items() if own == nic(0, 0)]
                samples.append((time.monotonic_ns(), depth.read(), placed))

            outcome, ends = engine.run(LIMIT_S, every_ns=DILATION * us(500), sample=sample), engine.ends()
    assert outcome.left == 0
    cnps = sum(qp.cnps_received for qp in ends.values())
    assert cnps > 0 and sum(qp.ce_packets for qp in ends.values()) >= cnps
    busy = [row for row in samples if max(row[2]) < each_bytes]  # until the first flow has ended
    late = busy[len(busy) // 4 :]
    got = [last - first for first, last in zip(late[0][2], late[-1][2], strict=True)]
    fair = sum(got) / flows
    shares = ", ".join(f"{bytes_ / fair:.3f}" for bytes_ in got)
    assert all(abs(bytes_ / fair - 1) <= 0.10 for bytes_ in got), f"shares of fair: {shares}; allowed 0.9 to 1.1"
    deepest = max(row[1] for row in late)
    assert deepest < ECN.kmax_bytes, f"queue of {deepest} bytes, Kmax is {ECN.kmax_bytes}"
    used = sum(got) * 8e9 * DILATION / (late[-1][0] - late[0][0]) / (RATE_BPS * MTU_BYTES / FRAME_BYTES)
    print(f"{flows} flows: shares {shares}; deepest {deepest} B; {used:.1%} of the line; {cnps} CNPs")
    assert used >= 0.95, f"only {used:.1%} of the line was used"


def test_without_congestion_control_the_queue_passes_kmax():
    messages = [Message(source=nic(1 + flow, 0), target=nic(0, 0), size_bytes=mib(16)) for flow in range(8)]
    deepest = [0]
    with make_fabric(8) as fabric, Engine(fabric, messages, Transport(cc="none", rto_ns=ms(5))) as engine:
        port = fabric.ports[nic(0, 0)].peer
        with Netlink(fabric.netlink(port.node).netns) as netlink:
            depth = DepthProbe(netlink, fabric.ports[port].ifindex)
            outcome = engine.run(LIMIT_S, every_ns=DILATION * us(20), sample=lambda: deepest.append(depth.read()))
    assert outcome.left == 0
    assert max(deepest) > ECN.kmax_bytes, f"deepest queue {max(deepest)} bytes"


@pytest.mark.parametrize("transport", ["gbn", "sr"])
def test_a_paced_nic_keeps_the_order_of_each_of_its_connections(transport):
    """32 connections take turns, so that each packet is written over one of another's."""
    messages = [Message(source=nic(1, 0), target=nic(0, 0), size_bytes=700, channel=channel)
                for _ in range(100) for channel in range(32)]
    with make_fabric(1) as fabric, Engine(fabric, messages, Transport(transport=transport, cc="dcqcn", rto_ns=ms(5))) as engine:
        assert fabric.paced, "this kernel has no fq"
        outcome, ends = engine.run(LIMIT_S), engine.ends()
    early, again = (sum(getattr(end, name) for end in ends.values()) for name in ("early_packets", "resent_packets"))
    refused = sum(end.refused_packets for end in ends.values())
    assert (outcome.left, early, again, refused) == (0, 0, 0, 0), f"{early} early, {again} sent again, {refused} refused"
