"""Promises of the comparison with PXN: pairs that differ in nothing else, and a saving with its sign."""

from __future__ import annotations

from emu.measure.pxn import curve, pairs, saved

APART = ("pattern", "size_bytes")


def row(pxn: str, size_bytes: int, completion_us: float, pattern: str = "moe") -> dict[str, object]:
    return {"pxn": pxn, "size_bytes": size_bytes, "completion_us": completion_us, "pattern": pattern, "leaf_up": 4}


def test_only_rows_that_differ_in_nothing_but_pxn_are_compared():
    rows = [row("off", 1, 10.0), row("off", 2, 20.0), row("on", 2, 15.0), row("on", 4, 1.0), row("on", 1, 9.0, "all_to_all")]
    assert [(off["completion_us"], on["completion_us"]) for off, on in pairs(rows, APART)] == [(20.0, 15.0)]


def test_a_saving_is_above_zero_and_a_cost_below():
    rows = [row("off", 1, 10.0), row("on", 1, 5.0), row("off", 2, 10.0), row("on", 2, 12.0)]
    found = {metric.name: (round(metric.value, 6), metric.note) for metric in saved(rows, APART)}
    assert found == {
        "time_saved_size_1": (0.5, "10.0 us without, 5.0 us with"),
        "time_saved_size_2": (-0.2, "10.0 us without, 12.0 us with"),
    }
    both = saved([*rows, row("off", 1, 8.0, "all_to_all"), row("on", 1, 4.0, "all_to_all")], APART)
    assert both[-1].name == "time_saved_all_to_all_size_1", both[-1].name


def test_a_curve_has_time_against_size_in_the_panel_of_its_pattern_and_uplinks():
    (series,) = curve([row("on", 64, 5.0), row("on", 512, 7.0)])
    assert (series.x, series.y, series.log) == ([64.0, 512.0], [5.0, 7.0], True)
    assert "moe" in series.panel and "4 uplinks" in series.panel
