"""Promises about what cells cost: bytes of the queues against the closed form, and times beside those in cells."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emu.measure.cells import tax_row, times_over_ddc
from emu.measure.counters import PortCounters
from emu.nic.message import Message, Messages
from emu.switch.cells import cell_tax
from emu.topology.frame import ACK_BYTES, frame_bytes
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

MTU, FRAME, CELL, HEADER = 4096, 4174, 256, 14
PLAN = make_plan(SpineLeaf(servers=2, gpus_per_server=1, wiring="single", leaf_down=1, leaf_up=2, rate_bps=gbps(400),
                           queue=QueueProfile(buffer_bytes=mib(1))).topology(), seed=1)


def transferred(size_bytes: int, nic_bytes: int, nic_packets: int, answers: int, uplinks: list[int]) -> SimpleNamespace:
    """One message; `uplinks`: bytes of leaf0's two and leaf1's two."""
    ports = [Port(f"leaf{leaf}", f"up{at}") for leaf in (0, 1) for at in (0, 1)]
    delta = {port: PortCounters() for port in PLAN.ports} | {
        port: PortCounters(sent_bytes=size) for port, size in zip(ports, uplinks, strict=True)}
    delta[nic(0, 0)] = PortCounters(sent_bytes=nic_bytes, sent_packets=nic_packets)
    delta[nic(1, 0)] = PortCounters(sent_bytes=answers * ACK_BYTES, sent_packets=answers)
    messages = Messages.of([Message(source=nic(0, 0), target=nic(1, 0), size_bytes=size_bytes)])
    return SimpleNamespace(fabric=SimpleNamespace(plan=PLAN), messages=messages, delta=delta)


def test_full_packets_alone_pay_the_tax_of_one():
    each = 10 * 17 * (CELL + HEADER) // 2
    row = tax_row(transferred(10 * MTU, 10 * FRAME, 10, 0, [each, each, 0, 0]), CELL)
    assert row["uplink_tax"] == row["formula_tax"] == pytest.approx(cell_tax(FRAME, CELL)) == pytest.approx(0.09967, abs=1e-5)


def test_a_short_last_packet_and_acknowledgements_count_by_their_own_cells():
    """300 bytes make a frame of 378, two cells; an acknowledgement is one."""
    sent, cells = FRAME + frame_bytes(300) + 2 * ACK_BYTES, 17 + 2 + 2
    row = tax_row(transferred(MTU + 300, FRAME + frame_bytes(300), 2, 2, [0, 0, 0, 0]), CELL)
    assert row["formula_tax"] == pytest.approx(cells * (CELL + HEADER) / sent - 1)
    assert row["uplink_tax"] == -1, "nothing went up"


def test_whole_packets_pay_no_tax():
    row = tax_row(transferred(MTU, FRAME, 1, 1, [FRAME, 0, 0, ACK_BYTES]), 0)
    assert row == {"uplink_tax": 0, "formula_tax": 0}


def test_a_time_is_put_beside_that_in_cells_of_the_same_traffic_only():
    rows = [{"lb": lb, "traffic": traffic, "completion_us": us} for lb, traffic, us in (
        ("ecmp", "incast", 30.0), ("ddc", "incast", 10.0), ("spray", "permutation", 9.0))]
    assert [(metric.name, metric.value) for metric in times_over_ddc(rows, ["traffic"])] == [("time_over_ddc_ecmp_incast", 3.0)]
