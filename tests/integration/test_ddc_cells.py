"""Promises of the scenario ddc_cells as a user runs it: what cells cost, and where an incast waits with them and without."""

from __future__ import annotations

import pytest

from emu.switch.cells import CELL_HEADER_BYTES, cells_of
from emu.topology.frame import ACK_BYTES

pytestmark = [pytest.mark.needs_virtual_clock, pytest.mark.needs_red]
NICS, SENDERS, WINDOW_PACKETS, FRAME_BYTES, PACKETS, ACK_EVERY, CREDIT_NS = 16, 8, 128, 4174, 512, 4, 1000
CREDIT_BYTES = CREDIT_NS * 50  # what a NIC sends in the time that a credit takes
SMALL = (f"gpus={NICS}", "leaf_down=4", "leaf_up=4", f"size_bytes={PACKETS * 4096}", "qps=1", f"window_packets={WINDOW_PACKETS}",
         f"credit_rtt_ns={CREDIT_NS}")


def rows_of(run_scenario, *settings):
    exit_code, result = run_scenario("ddc_cells", *SMALL, *settings)
    assert exit_code == 0, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return {row["lb"]: row for row in result.rows}, result


def tax_with_acknowledgements(cell_bytes):
    in_cells = (ACK_EVERY * cells_of(FRAME_BYTES, cell_bytes) + 1) * (cell_bytes + CELL_HEADER_BYTES)
    return in_cells / (ACK_EVERY * FRAME_BYTES + ACK_BYTES) - 1


def test_cells_keep_order_cost_what_their_closed_form_says_and_wait_for_credits(run_scenario):
    rows, _ = rows_of(run_scenario, "traffic=permutation")
    wanted = tax_with_acknowledgements(256)
    assert wanted == pytest.approx(0.112, abs=1e-3), f"the closed form says {wanted:.4f}"
    got = {lb: row["uplink_tax"] for lb, row in rows.items()}
    assert got == {"ecmp": 0, "spray": 0, "ddc": pytest.approx(wanted, abs=1e-6)}, f"want {wanted:.6f}"
    assert rows["ddc"]["cell_tax"] == pytest.approx(wanted, abs=1e-6), "the program counts otherwise than the queues"
    reordered = {lb: row["reordered_ratio"] for lb, row in rows.items()}
    assert reordered["ddc"] == reordered["ecmp"] == 0 < reordered["spray"], f"reordered: {reordered}"
    assert rows["ddc"]["uplink_max_over_mean"] < 1.01 < rows["ecmp"]["uplink_max_over_mean"]
    held = rows["ddc"]["voqs_max_bytes"]
    assert held == pytest.approx(NICS * CREDIT_BYTES, rel=0.05), f"{held} bytes in VOQs, {NICS * CREDIT_BYTES} wait for credits"
    assert rows["ecmp"]["voqs_max_bytes"] == 0


def test_an_incast_waits_in_virtual_output_queues_and_without_them_at_the_egress_port(run_scenario):
    rows, result = rows_of(run_scenario, "traffic=incast", f"senders={SENDERS}", "buffer_bytes=2500Ki")
    windows = SENDERS * WINDOW_PACKETS * FRAME_BYTES
    cells = rows.pop("ddc")
    assert 0.7 * windows < cells["voqs_max_bytes"] < 1.1 * windows, f"{cells['voqs_max_bytes']} bytes in VOQs of {windows}"
    assert cells["egress_max_bytes"] < 8 * FRAME_BYTES, f"{cells['egress_max_bytes']} bytes at the egress ports"
    bad = {name: cells[name] for name in ("ecn_marked_packets", "dropped_packets", "retransmitted_packets", "reordered_ratio")}
    assert not any(bad.values()), f"with cells: {bad}"
    assert cells["credit_wait_max_us"] > 0.7 * windows / 50_000, f"a credit took at most {cells['credit_wait_max_us']} us"
    assert cells["busbw_fraction"] > 0.98 and cells["bystander_slowed"] < 1.01, cells
    for lb, row in rows.items():
        assert row["egress_marked_packets"] > 100 and row["egress_dropped_packets"] > 100, f"{lb}: no incast, no test: {row}"
        assert row["egress_max_bytes"] > 2e6 and row["voqs_max_bytes"] == 0, f"{lb}: {row['egress_max_bytes']} bytes waited there"
        ratio = result.conclusions[f"time_over_ddc_{lb}"].value
        assert ratio > 1.1, f"{lb}: {ratio:.2f} times as long as with cells, though packets were lost"
        assert row["bystander_slowed"] > 1.01, f"{lb}: the bystander was {row['bystander_slowed']:.3f} times as slow: no test"


def test_a_fabric_no_faster_than_its_nics_is_slower_by_the_tax_of_its_cells(run_scenario):
    _, result = rows_of(run_scenario, "traffic=permutation", "lb=ddc", "fabric_speedup=1", "cell_bytes=256,1024")
    for row in result.rows:
        wanted = tax_with_acknowledgements(row["cell_bytes"])
        assert row["uplink_tax"] == pytest.approx(wanted, abs=1e-6), f"{row['cell_bytes']}: {row['uplink_tax']}, want {wanted}"
        share = row["busbw_fraction"] * (1 + row["uplink_tax"])
        assert 0.9 < share <= 1, f"{row['busbw_fraction']:.1%} of ideal: {share:.1%} of what the links carry in cells"
