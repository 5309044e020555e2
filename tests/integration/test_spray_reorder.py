"""Promises of the scenario spray_reorder as a user runs it: the buffer is whole, and the order is what arithmetic says."""

from __future__ import annotations

import pytest

from emu.measure.reorder import reordering

pytestmark = [pytest.mark.needs_netem, pytest.mark.needs_virtual_clock]
SPINES, PACKETS, MTU_BYTES = 4, 256, 4096
FRAME_NS = 4170 * 8 / 400   # at 400 Gb/s
STEP_NS = 110               # no two arrivals of the prediction are nearer than what queues and timers round


def predicted(step_ns):
    """Packet i leaves at i frame times and goes over spine i mod 4, whose two cables are each longer by a step a spine."""
    arrivals = sorted(range(PACKETS), key=lambda number: number * FRAME_NS + 2 * step_ns * (number % SPINES))
    return reordering(arrivals, MTU_BYTES)


def test_a_sprayed_buffer_is_whole_and_exactly_as_far_out_of_order_as_its_paths_differ(run_scenario):
    settings = (f"size_bytes={PACKETS * MTU_BYTES}", "lb=spray,spray_rr,spray_random,ecmp", f"delay_step_ns=0,{STEP_NS}")
    exit_code, result = run_scenario("spray_reorder", *settings)
    assert exit_code == 0, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    rows = {(row["lb"], row["delay_step_ns"]): row for row in result.rows}
    for (lb, step_ns), row in rows.items():
        assert row["data_intact"] and row["delivered_packets"] == PACKETS, f"{lb}, {step_ns} ns: {row}"
        several = lb != "ecmp" and step_ns > 0
        assert (row["reordered_ratio"] > 0) is several, f"{lb}, {step_ns} ns: {row['reordered_ratio']:.1%} reordered"
        assert (row["reassembly_buffer_bytes"] > 0) is several, f"{lb}, {step_ns} ns: {row['reassembly_buffer_bytes']} held"
    for step_ns in (0, STEP_NS):
        got, want = rows["spray_rr", step_ns], predicted(step_ns)
        seen = got["reordered_ratio"], got["reorder_extent_max"], got["reassembly_buffer_bytes"]
        assert seen == (want.reordered_ratio, want.extent_max, want.buffer_bytes), f"{step_ns} ns: {seen}, predicted {want}"
        assert rows["spray", step_ns]["uplink_max_over_mean"] <= 1.02, rows["spray", step_ns]["uplink_bytes"]
        assert rows["ecmp", step_ns]["uplink_max_over_mean"] == SPINES, "one flow took more than one uplink"
