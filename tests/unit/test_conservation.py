"""Promises about the three laws of conservation: they hold where nothing vanished, and a broken one names its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emu.measure import conservation
from emu.measure.counters import PortCounters, Snapshot, difference
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

PLAN = make_plan(
    SpineLeaf(
        servers=3,
        gpus_per_server=1,
        wiring="rail",
        leaf_down=3,
        leaf_up=1,
        rate_bps=gbps(400),
        queue=QueueProfile(buffer_bytes=mib(16)),
    ).topology(),
    seed=1,
)
EGRESS = Port("leaf0", "down0")  # where an incast of srv1 and srv2 to srv0 queues
SENT, DROPPED, QUEUED = 1800, 150, 50


def incast() -> Snapshot:
    """srv1 and srv2 send 1000 packets each to srv0; the leaf's port drops 150 and still has 50."""
    delta = {port: PortCounters() for port in PLAN.ports}
    for server in (1, 2):
        delta[nic(server, 0)] = PortCounters(sent_packets=1000)
        delta[Port("leaf0", f"down{server}")] = PortCounters(received_packets=1000)
    delta[EGRESS] = PortCounters(sent_packets=SENT, dropped_packets=DROPPED, queued_packets=QUEUED)
    delta[nic(0, 0)] = PortCounters(received_packets=SENT)
    return delta


def broken(port: Port, **counters: int) -> Snapshot:
    delta = incast()
    return delta | {port: replace(delta[port], **counters)}


def test_an_incast_that_drops_and_queues_loses_nothing():
    checks = conservation.checks(PLAN, incast())
    assert [(check.value, check.limit, check.ok, check.note) for check in checks] == [(0, 0, True, "")] * 2


def test_a_fabric_at_rest_obeys_every_law():
    assert all(check.ok for check in conservation.checks(PLAN, {port: PortCounters() for port in PLAN.ports}))


@pytest.mark.parametrize(
    ("port", "received", "where", "lost"),
    [
        (nic(0, 0), SENT - 1, "leaf0:down0->srv0:rail0", 1),
        (nic(0, 0), SENT + 2, "leaf0:down0->srv0:rail0", -2),
        (nic(1, 0), 5, "leaf0:down1->srv1:rail0", -5),
    ],
)
def test_a_packet_lost_or_made_on_a_cable_names_cable_direction_and_number(port, received, where, lost):
    delta = broken(port, received_packets=received)
    assert list(conservation.link_losses(PLAN, delta)) == [(where, lost)]
    check = conservation.checks(PLAN, delta)[0]
    assert (check.ok, check.value, check.note) == (False, abs(lost), f"{where}: {lost}")


@pytest.mark.parametrize(
    ("counters", "lost"),
    [
        ({"dropped_packets": DROPPED - 1}, 1),
        ({"queued_packets": QUEUED + 3}, -3),
        ({"dropped_packets": 0, "queued_packets": 0}, 200),
    ],
)
def test_a_packet_lost_or_made_inside_a_switch_names_the_switch_and_number(counters, lost):
    delta = broken(EGRESS, **counters)
    assert list(conservation.switch_losses(PLAN, delta)) == [("leaf0", lost)]
    link_check, switch_check = conservation.checks(PLAN, delta)
    assert link_check.ok
    assert (switch_check.ok, switch_check.value, switch_check.note) == (False, abs(lost), f"leaf0: {lost}")


def test_losses_that_cancel_out_over_the_fabric_are_still_losses():
    delta = broken(nic(0, 0), received_packets=SENT - 4) | {
        nic(1, 0): PortCounters(sent_packets=1000, received_packets=4)
    }
    check = conservation.checks(PLAN, delta)[0]
    assert (check.ok, check.value) == (False, 8), check


@pytest.mark.parametrize("made", [40, -40])
def test_what_a_program_makes_of_packets_or_takes_in_is_no_loss_and_has_to_be_exact(made):
    """As a cell fabric does: an ingress leaf has more cells to send than it received packets, an egress leaf fewer packets."""
    delta = broken(EGRESS, sent_packets=SENT + made) | {nic(0, 0): PortCounters(received_packets=SENT + made)}
    assert [check.ok for check in conservation.checks(PLAN, delta, made={"leaf0": made})] == [True, True]
    assert list(conservation.switch_losses(PLAN, delta, {"leaf0": made + 1})) == [("leaf0", 1)]
    assert list(conservation.switch_losses(PLAN, delta)) == [("leaf0", -made)]


def test_a_servers_own_packets_are_no_switchs_loss():
    assert list(conservation.switch_losses(PLAN, broken(nic(2, 0), sent_packets=1000, dropped_packets=7))) == []


def test_what_is_queued_before_and_after_is_counted_once():
    """A queue's depth is a state, not a count: the difference of two snapshots keeps the later one."""
    before = {EGRESS: PortCounters(sent_packets=100, queued_packets=30, queued_bytes=3000)}
    after = {EGRESS: PortCounters(sent_packets=300, queued_packets=10, queued_bytes=1000, dropped_packets=5)}
    delta = difference(before, after)[EGRESS]
    assert (delta.sent_packets, delta.dropped_packets, delta.queued_packets, delta.queued_bytes) == (200, 5, 10, 1000)
