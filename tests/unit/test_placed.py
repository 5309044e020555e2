"""Promises about a buffer that was cut into packets with their own addresses: what is whole, late, missing or changed is said."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import FabricError
from emu.fabric.host import HostLoad
from emu.measure.counters import PortCounters
from emu.measure.placed import BASE_VA, QPN, Placed, Sent, delays_ns
from emu.nic.incast import flow_between
from emu.nic.receiver import Received
from emu.roce.packets import write_frames
from emu.scale import Scale
from emu.topology.model import Port, nic
from emu.topology.plan import Plan, make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

MTU, PACKETS, LAST_BYTES = 256, 12, 100
DATA = Random(1).randbytes((PACKETS - 1) * MTU + LAST_BYTES)
STEP_NS = 300


def plan() -> Plan:
    shape = SpineLeaf(servers=2, gpus_per_server=1, wiring="single", leaf_down=1, leaf_up=3, rate_bps=gbps(400), delay_ns=1000,
                      path_mtu_bytes=MTU, queue=QueueProfile(buffer_bytes=mib(1)))
    even = shape.topology()
    longer = {f"spine{k}": k * STEP_NS for k in range(3)}
    links = tuple(replace(link, delay_ns=link.delay_ns + longer.get(link.b.node, 0)) for link in even.links)
    return make_plan(replace(even, links=links), seed=1)


PLAN = plan()
FRAMES = write_frames(flow_between(PLAN.ports[nic(0, 0)], PLAN.ports[nic(1, 0)], QPN), va=BASE_VA, payload=DATA, path_mtu=MTU)


def placed(frames: list[bytes]) -> Placed:
    delta = dict.fromkeys(PLAN.ports, PortCounters()) | {Port("leaf0", "up1"): PortCounters(sent_bytes=900)}
    received = Received(packets=PACKETS, bytes=0, ce_packets=0, ect_packets=0, cnp_packets=0, first_ns=0, last_ns=50_000)
    fabric = SimpleNamespace(plan=PLAN, scale=Scale(dilation=10), knobs_compared=1)
    idle = HostLoad(cpu_s=0, at_s=0, backlog_drops=0)
    return Placed(Sent(fabric, nic(0, 0), nic(1, 0), DATA, delta, (idle, idle), received, start_ns=10_000), frames)


@given(st.permutations(range(PACKETS)))
def test_any_order_of_arrival_gives_the_buffer_back(order):
    found = placed([FRAMES[number] for number in order])
    assert found.intact and found.memory.complete
    assert (found.order.reordered_ratio > 0) is (list(order) != sorted(order)), f"{order}: {found.order}"


@pytest.mark.parametrize("lost", range(PACKETS))
def test_a_buffer_that_lacks_a_packet_is_not_intact(lost):
    assert not placed(FRAMES[:lost] + FRAMES[lost + 1 :]).intact, f"packet {lost} is missing, and nobody said so"


def test_one_changed_bit_of_payload_is_refused_and_the_buffer_not_intact():
    changed = bytearray(FRAMES[3])
    changed[-20] ^= 1
    found = placed([*FRAMES[:3], bytes(changed), *FRAMES[4:]])
    assert not found.intact and found.memory.outcomes["corrupted"] == 1
    check = next(check for check in found.checks() if check.name == "packets not as they were sent")
    assert (check.ok, check.value, check.note) == (False, 1, "11 placed, 1 corrupted")


def test_a_capture_that_missed_a_packet_makes_the_run_invalid():
    for frames, missed in ((FRAMES, 0), (FRAMES[1:], 1)):
        check = next(check for check in placed(frames).checks() if check.name == "packets the capture missed")
        assert (check.ok, check.value) == (not missed, missed)


def test_bytes_held_are_payload_also_of_the_short_last_packet():
    found = placed([*FRAMES[1:], FRAMES[0]])
    assert found.order.buffer_bytes == (PACKETS - 2) * MTU + LAST_BYTES


def test_paths_differ_by_both_cables_of_a_spine():
    assert delays_ns(PLAN, nic(0, 0), nic(1, 0)) == [2000 + 2 * k * STEP_NS for k in range(3)]
    row = placed(FRAMES).row()
    assert row["skew_ns"] == 4 * STEP_NS
    assert row["skew_bytes"] == 4 * STEP_NS * 400 // 8 and row["skew_packets"] == row["skew_bytes"] // (MTU + 64 + 14)


def test_the_row_is_in_fabric_time_and_of_the_senders_leaf():
    row = placed(FRAMES).row()
    assert row["completion_us"] == pytest.approx((50_000 - 10_000) / 10 / 1000)
    assert list(row["uplink_bytes"]) == [0, 900, 0] and row["uplink_max_over_mean"] == 3.0
    assert (row["data_intact"], row["reordered_ratio"], row["reassembly_buffer_bytes"]) == (True, 0, 0)


def test_that_nothing_came_is_said_in_one_line():
    with pytest.raises(FabricError, match="no RoCE packet from srv0:rail0 came to srv1:rail0"):
        placed([]).row()
