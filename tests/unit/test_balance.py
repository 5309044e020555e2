"""Promises about a load balancer's row: the ideal time by hand, uplinks of leaves that send, hashing's closed form beside it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emu.fabric.host import HostLoad
from emu.measure.balance import Balance, uplinks_of
from emu.measure.counters import PortCounters
from emu.measure.hashing import expected_efficiency
from emu.measure.transfers import Transferred
from emu.nic.engine import Outcome
from emu.nic.transport import Transport
from emu.nic.message import Message, Messages
from emu.scale import Scale
from emu.topology.model import Port, nic
from emu.topology.plan import Plan, make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

MTU, FRAME = 4096, 4096 + 64 + 14
BYTES_PER_US = 50_000  # 400 Gb/s
IDLE = HostLoad(cpu_s=0, at_s=0, backlog_drops=0)


def plan(leaf_up: int = 4) -> Plan:
    """Two leaves of four NICs."""
    shape = SpineLeaf(servers=8, gpus_per_server=1, wiring="single", leaf_down=4, leaf_up=leaf_up, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=mib(1)))
    return make_plan(shape.topology(), seed=1)


def transferred(
    messages: list[Message], sent: dict[str, int], *, planned: Plan | None = None, took_ns: int = 1000
) -> Transferred:
    planned = planned or plan()
    by_name = {Port.parse(name): size for name, size in sent.items()}
    return Transferred(
        fabric=SimpleNamespace(plan=planned, scale=Scale(dilation=10)), messages=Messages.of(messages), transport=Transport(),
        outcome=Outcome(first_ns=0, last_ns=10 * took_ns, left=0), ends={}, done_ns=[], strangers=0, load=(IDLE, IDLE),
        delta={port: PortCounters(sent_bytes=by_name.get(port, 0)) for port in planned.ports},
        connections=list(dict.fromkeys((m.source, m.target, m.channel) for m in messages)),
    )


def message(source: int, target: int, size_bytes: int, channel: int = 0) -> Message:
    return Message(source=nic(source, 0), target=nic(target, 0), size_bytes=size_bytes, channel=channel)


def test_uplinks_are_the_leaves_ports_towards_spines_in_order():
    assert {leaf: [port.ifname for port in ports] for leaf, ports in uplinks_of(plan()).items()} == {
        leaf: ["up0", "up1", "up2", "up3"] for leaf in ("leaf0", "leaf1")}


@pytest.mark.parametrize(
    "messages, leaf_up, busiest_bytes, rates",
    [
        ([message(0, 4, MTU * 1000)], 4, MTU * 1000, 1),
        ([message(0, 4, MTU * 1000), message(0, 5, MTU * 500)], 4, MTU * 1500, 1),
        ([message(0, 4, MTU * 1000), message(1, 4, MTU * 1000)], 4, MTU * 2000, 1),
        ([message(k, 4 + k, MTU * 1000) for k in range(4)], 2, MTU * 4000, 2),
        ([message(0, 1, MTU * 1000)], 4, MTU * 1000, 1),
    ],
    ids=["one flow", "a sender's sum", "a receiver's sum", "uplinks half as many", "under one leaf"],
)
def test_the_ideal_is_what_the_busiest_nic_or_the_leafs_uplinks_take_at_line_rate(messages, leaf_up, busiest_bytes, rates):
    balance = Balance(transferred(messages, {"leaf0:up0": 1}, planned=plan(leaf_up)))
    assert balance.ideal_us == pytest.approx(busiest_bytes * FRAME / MTU / BYTES_PER_US / rates)


def test_the_fraction_reached_is_ideal_over_completion_in_fabric_time():
    done = transferred([message(0, 4, MTU * 1000)], {"leaf0:up0": FRAME * 1000}, took_ns=2 * FRAME * 1000 * 1000 // BYTES_PER_US)
    assert Balance(done).row()["busbw_fraction"] == pytest.approx(0.5)


def test_the_row_is_the_worst_leafs_max_and_the_mean_of_the_rest():
    messages = [message(0, 4, MTU, channel) for channel in range(8)] + [message(4, 0, MTU, channel) for channel in range(4)]
    sent = {"leaf0:up0": 300, "leaf0:up1": 100} | {f"leaf1:up{k}": 50 for k in range(4)}
    row = Balance(transferred(messages, sent)).row()
    assert row["uplink_max_over_mean"] == 3.0
    assert row["uplink_idle_share"] == pytest.approx((0.5 + 0) / 2)
    assert row["uplink_efficiency"] == pytest.approx((1 / 3 + 1) / 2)
    assert row["flows_per_uplink"] == pytest.approx((8 / 4 + 4 / 4) / 2)
    assert row["hash_efficiency"] == pytest.approx((expected_efficiency(4, 8) + expected_efficiency(4, 4)) / 2)
    assert list(row["uplink_bytes"]) == [300, 100, 0, 0], "those of the first leaf are drawn"


def test_a_leaf_that_only_receives_does_not_count_as_idle():
    """Its uplinks carry acknowledgements."""
    balance = Balance(transferred([message(0, 4, MTU)], {"leaf0:up0": 100, "leaf0:up1": 100, "leaf1:up0": 7}))
    assert list(balance.spreads) == ["leaf0"]
    assert balance.row()["uplink_max_over_mean"] == 2.0


def test_flows_under_their_leaf_leave_no_uplink_figures():
    balance = Balance(transferred([message(0, 1, MTU)], {}))
    assert not balance.flows and "uplink_max_over_mean" not in balance.row() and balance.series("ecmp") == []
    assert [metric.name for metric in balance.metrics()] == ["busbw_fraction"]


def test_the_figure_is_the_first_leafs_uplinks_in_megabytes():
    sent = {"leaf0:up0": 3_000_000, "leaf0:up2": 1_500_000}
    series, = Balance(transferred([message(0, 4, MTU)], sent)).series("ecmp")
    assert (series.name, list(series.x), list(series.y)) == ("ecmp", [0.0, 1.0, 2.0, 3.0], [3.0, 0.0, 1.5, 0.0])
    assert series.panel == "sent by leaf0 (MB)"
