"""Promises of alltoall_pxn: with PXN the queues count no byte over the spine; without it, just those that change rail."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs_virtual_clock
SMALL = ("gpus=16", "gpus_per_server=4", "domain_gpus=4", "leaf_down=4")
MIDDLE, LARGE = ("begin_bytes=512Ki", "end_bytes=512Ki"), ("begin_bytes=4Mi", "end_bytes=4Mi")


def rows_of(run_scenario, *settings):
    exit_code, result = run_scenario("alltoall_pxn", *SMALL, *settings)
    assert exit_code == 0 and result.valid, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return result


def test_off_crosses_the_spine_and_on_stays_under_the_leaves(run_scenario):
    result = rows_of(run_scenario, "leaf_up=4", "experts=64", *MIDDLE)
    for row in result.rows:
        found, payload, where = row["all_uplinks_bytes"], row["cross_rail_bytes"], f"{row['pattern']}, pxn={row['pxn']}"
        if row["pxn"] == "on":
            assert found == payload == 0, f"{where}: {found} bytes on uplinks"
            assert row["leaf_local_bytes"] > row["same_rail_bytes"], f"{where}: {row['leaf_local_bytes']} bytes under leaves"
        else:
            assert payload < found < 1.1 * payload, f"{where}: {found} bytes on uplinks for {payload} of payload"
        inside = row["scale_up_wire_bytes"] / row["scale_up_bytes"]
        assert 1 < inside < 1.1, f"{where}: scale-up links carried {inside:.3f} times their payload"
    equal = next(row for row in result.rows if (row["pattern"], row["pxn"]) == ("all_to_all", "off"))
    assert equal["cross_rail_bytes"] == 4 * 3 * 4 * 3 * (512 << 10) // 16, equal["cross_rail_bytes"]


def test_pxn_saves_nearly_half_where_uplinks_are_scarce_and_next_to_nothing_where_packets_are_sprayed(run_scenario):
    scarce = rows_of(run_scenario, "pattern=all_to_all", "leaf_up=2", *LARGE)
    plenty = rows_of(run_scenario, "pattern=all_to_all", "leaf_up=4", "lb=spray", *LARGE)
    (much,), (little,) = ([metric.value for metric in one.conclusions.values()] for one in (scarce, plenty))
    assert 0.3 < much < 0.6, f"{much:.1%} of the time saved with one uplink for two NICs, want about half"
    assert little < 0.1 < much - 0.1, f"{little:.1%} saved with as many uplinks as NICs and spray, want next to nothing"
