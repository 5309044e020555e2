"""Promises of the scenario path_navigation as a user runs it: links carry what the controller said, dead ones nothing."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.needs_virtual_clock, pytest.mark.needs_red]
WITHIN = 0.01
NICS, PER_LEAF, SIZE_BYTES = 16, 4, 1 << 20


def test_every_busiest_link_carries_what_was_promised_before_and_after_a_cable_has_died(run_scenario):
    settings = (f"gpus={NICS}", "gpus_per_server=4", f"leaf_down={PER_LEAF}", f"leaf_up={PER_LEAF}", f"size_bytes={SIZE_BYTES}",
                "group_gpus=4", "fail=none,leaf2:up3,leaf0:up1")
    exit_code, result = run_scenario("path_navigation", *settings)
    assert exit_code == 0, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    rows = {(row["traffic"], row["fail"]): row for row in result.rows}
    assert len(rows) == 6, list(rows)
    for case, row in rows.items():
        off = row["uplink_off"], row["downlink_off"]
        assert max(map(abs, off)) <= WITHIN, f"{case}: busiest up and down off by {off}"
        assert row["promised_max_bytes"] == row["bound_max_bytes"], f"{case}: {row['promised_max_bytes']} promised"
    whole, broken, other = (rows["permutation", fail] for fail in ("none", "leaf2:up3", "leaf0:up1"))
    assert whole["promised_max_bytes"] == SIZE_BYTES, f"{whole['promised_max_bytes']} bytes on a link: flows share it"
    # 16 flows of a quarter each on three uplinks: one has six
    assert broken["promised_max_bytes"] == SIZE_BYTES * 6 // 4, f"{broken['promised_max_bytes']} bytes on the busiest link"
    assert broken["moved_flows"] == 8, f"{broken['moved_flows']} flows moved, four up and four down used the cable"
    assert (whole["moved_flows"], broken["dead_link_bytes"]) == (0, 0)
    assert (other["moved_flows"], other["promised_max_bytes"]) == (8, broken["promised_max_bytes"]), "not as if alone"
    slower = broken["completion_us"] / whole["completion_us"]
    assert 1.1 < slower < 1.6, f"{slower:.2f} times as long with the cable dead"
