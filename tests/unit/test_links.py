"""Promises about how long a dead cable stops a run: from the failure to the slowest connection's next byte sent since."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emu.errors import TopologyError
from emu.measure.counters import PortCounters
from emu.measure.links import Cable, Events, failing
from emu.measure.transfers import Sample
from emu.nic.transport import Transport
from emu.scale import Scale
from emu.topology.model import Port
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

DILATION, FAIL_US, COMPLETION_US = 10, 20, 90.0
MTU, WINDOW = 4096, 8
SHAPE = SpineLeaf(servers=2, gpus_per_server=1, wiring="single", leaf_down=1, leaf_up=2, rate_bps=gbps(400),
                  queue=QueueProfile(buffer_bytes=mib(1)))
PLAN = make_plan(SHAPE.topology(), seed=1)
DEAD = [link for link in PLAN.topology.links if Port("leaf0", "up0") in (link.a, link.b)]


def row(*samples: tuple[float, tuple[int, ...]], delta: dict | None = None) -> dict:
    """Two connections of 100 packets, a window of 8; samples are (fabric us, packets placed by each)."""
    placed = [Sample(round(at_us * DILATION * 1000), (), tuple(MTU * packets for packets in each)) for at_us, each in samples]
    transferred = SimpleNamespace(
        fabric=SimpleNamespace(plan=PLAN, scale=Scale(dilation=DILATION)), transport=Transport(window_packets=WINDOW), made={},
        connections=["a", "b"], connection_bytes=[100 * MTU, 100 * MTU], samples=placed, completion_us=COMPLETION_US,
        delta=delta or dict.fromkeys(PLAN.ports, PortCounters()),
    )
    return Events(fail_us=FAIL_US, every_us=1, live=SimpleNamespace(tick=lambda: None), dead=DEAD).row(transferred)


def test_the_slowest_connection_counts():
    moved = row((10, (5, 5)), (20, (10, 10)), (25, (19, 10)), (60, (30, 19)), (70, (90, 90)))
    assert moved["moves_again_us"] == 40


def test_a_window_of_packets_may_have_been_past_the_cable_and_one_more_was_sent_since():
    assert row((20, (10, 10)), (25, (40, 18)), (60, (50, 18)), (70, (60, 19)))["moves_again_us"] == 50


def test_what_was_complete_before_is_waited_for_by_nobody():
    assert row((20, (100, 10)), (30, (100, 19)))["moves_again_us"] == 10


def test_the_last_packet_counts_although_less_than_a_window_was_left():
    assert row((20, (95, 10)), (30, (99, 50)), (45, (100, 50)))["moves_again_us"] == 25


def test_bytes_at_the_very_time_of_the_failure_came_before_it():
    assert row((20, (10, 10)), (21, (10, 19)), (24, (19, 20)))["moves_again_us"] == 4


def test_before_the_first_sample_nothing_had_arrived():
    assert row((25, (8, 9)), (33, (9, 9)))["moves_again_us"] == 13


def test_one_that_no_sample_saw_move_is_counted_until_the_end():
    assert row((20, (10, 10)), (30, (10, 30)))["moves_again_us"] == COMPLETION_US - FAIL_US


def test_packets_lost_are_those_of_the_dead_cable_and_the_switches_at_its_ends():
    counters = dict.fromkeys(PLAN.ports, PortCounters())
    counters[Port("leaf0", "up0")] = PortCounters(sent_packets=9)
    counters[DEAD[0].b] = PortCounters(received_packets=5)  # four vanish on the cable, five in spine0, which sends none on
    counters[Port("leaf0", "down0")] = PortCounters(received_packets=9)
    counters[Port("leaf1", "up1")] = PortCounters(sent_packets=3)  # elsewhere: a fault of the run, not of the cable
    assert row((20, (10, 10)), delta=counters)["lost_packets"] == 9


def test_without_a_cable_there_is_nothing_to_wait_for_or_to_say():
    with failing(None, Cable("", FAIL_US, 0), ()) as events:
        events.tick()
        assert (events.every_us, list(events.dead)) == (0, [])
        assert events.row(None) == {}


@pytest.mark.parametrize("name", ["leaf0", ":up0"])
def test_what_is_no_port_is_refused_by_name(name):
    with pytest.raises(TopologyError, match="is no port; want NODE:INTERFACE, such as leaf0:up0"):
        with failing(None, Cable(name, FAIL_US, 0), ()):
            pass
