"""The promises of the ECN marker, whichever one this kernel has: sch_red in the lab kernel, the eBPF marker on a host without.

On the real clock another process may take the CPU, so the rate checks of a run may miss; what was marked must be right all
the same, because the law is compared with the depths that packets really found.
"""

from __future__ import annotations

import pytest

from emu.measure import marking
from emu.topology.queue_profile import EcnProfile

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_marker]
SMALL = ("gpus_per_server=1", "senders=4", "leaf_down=5", "leaf_up=0", "size_bytes=16MiB", "buffer_bytes=64MiB")
STEP_BYTES = 400_000
FRAME_BYTES = 4170
DISTURBED_BY_OTHERS = {"receiver's rate off by", "CPU of the sending thread"}


def rows_of(run_scenario, name, *settings):
    exit_code, result = run_scenario(name, *settings)
    missed = {check.name.partition(" [")[0] for check in result.failed_checks}
    assert missed <= DISTURBED_BY_OTHERS, f"exit {exit_code}, checks missed: {missed}"
    return result.rows


def test_up_to_load_0_9_not_one_packet_is_marked(run_scenario):
    for row in rows_of(run_scenario, "incast_ecn", *SMALL, "load=0.5,0.9", "kmin_bytes=200000", "kmax_bytes=400000"):
        seen = (row["ecn_marked_packets"], row["ce_delivered_packets"], row["dropped_packets"])
        assert seen == (0, 0, 0), f"load {row['load']}: marked, CE, dropped are {seen}; deepest {row['depth_max_bytes']} B"
        assert row["delivered_packets"] == 16384, f"load {row['load']}: {row['delivered_packets']} of 16384 delivered"


def test_a_step_marks_at_least_95_percent_once_the_queue_has_built(run_scenario):
    step = (f"kmin_bytes={STEP_BYTES}", f"kmax_bytes={STEP_BYTES}", "pmax=1")
    for row in rows_of(run_scenario, "incast_ecn", *SMALL, *step, "load=1.2,1.5"):
        building = STEP_BYTES / FRAME_BYTES * row["load"] / (row["load"] - 1)  # packets until the queue is STEP_BYTES deep
        share = row["ce_delivered_packets"] / (row["delivered_packets"] - building)
        assert share >= 0.95, f"load {row['load']}: {share:.1%} CE after {building:.0f} packets of building, want 95 %"
        assert row["ce_delivered_packets"] < row["delivered_packets"], "the first packets found no queue: want some unmarked"


def test_every_packet_is_delivered_dropped_or_queued_and_marks_never_fall_short_of_ce(run_scenario):
    small_buffer = (*SMALL[:-1], "buffer_bytes=2MiB", "kmin_bytes=400000", "kmax_bytes=800000")
    for row in rows_of(run_scenario, "incast_ecn", *small_buffer, "load=0.8,1.5,3"):
        ends = row["delivered_packets"] + row["dropped_packets"] + row["queued_packets"]
        offered = row["offered_packets"]
        assert offered == ends == 16384, f"load {row['load']}: 16384 sent, {offered} offered, {ends} ended"
        assert (row["dropped_packets"] > 0) == (row["load"] > 1), f"load {row['load']}: {row['dropped_packets']} dropped"
        lost_marks = row["ecn_marked_packets"] - row["ce_delivered_packets"]
        assert 0 <= lost_marks <= row["dropped_packets"], f"load {row['load']}: {lost_marks} marked packets undelivered"


def test_marks_at_a_held_depth_follow_the_law_and_would_not_pass_for_another(run_scenario):
    rows = rows_of(run_scenario, "ecn_truth", "pmax=0.2", "packets=6000")
    assert len(rows) == 7, f"{len(rows)} depths measured, want 7"
    for row in rows:
        marked = row["ecn_marked_packets"]
        assert row["in_band"], f"depth {row['depth']}: {marked} marks, want {row['low']:.0f} to {row['high']:.0f}"
        if 0 < row["depth"] < 1 and row["expected"] > 100:
            doubled = marking.band([2 * row["expected"] / row["packets"]] * row["packets"], 0)
            assert not doubled.holds(marked), f"depth {row['depth']}: {marked} marks would pass for twice the probability too"


def test_the_band_knows_the_law_below_on_and_above_the_ramp():
    law = EcnProfile(kmin_bytes=1000, kmax_bytes=2000, pmax=0.5)
    assert [law.probability(q) for q in (999, 1000, 1500, 1999, 2000)] == pytest.approx([0, 0, 0.25, 0.4995, 1])
    assert marking.band([law.probability(2500)] * 10, 0).low == 10
