"""Promises about plot.svg: every series is a curve with its name, and the same result makes the same picture."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from emu.measure.metric import Bars, Series
from emu.report import plot
from emu.report.result import Result, read


def result(*series: Series) -> Result:
    return Result(scenario="dcqcn_fairness", seed=1, parameters={}, clock="virtual", kernel="6.1", dilation=100,
                  series=list(series))


def curve(panel: str, name: str, *y: float) -> Series:
    return Series(panel, name, "fabric time (µs)", [float(x) for x in range(len(y))], list(y))


def test_each_panel_and_each_curve_is_named_and_the_picture_is_the_same_twice():
    drawn = [plot.draw(result(curve("queue (kB)", "leaf0:down0", 1, 5, 2), curve("goodput (Gb/s)", "srv1:rail0", 400, 200, 200)))
             for _ in range(2)]
    words = set(re.findall(r">([^<>]+)</text>", drawn[0]))
    assert {"queue (kB)", "goodput (Gb/s)", "leaf0:down0", "srv1:rail0", "fabric time (µs)"} <= words, words
    assert drawn[0] == drawn[1]


def test_a_curve_that_differs_makes_another_picture():
    assert plot.draw(result(curve("queue (kB)", "a", 1, 2))) != plot.draw(result(curve("queue (kB)", "a", 1, 3)))


def test_nothing_is_written_without_a_folder_a_result_or_a_series(tmp_path: Path):
    assert plot.write(None) is None
    assert plot.write(tmp_path) is None
    result().write(tmp_path)
    assert plot.write(tmp_path) is None
    result(curve("queue (kB)", "a", 1, 2)).write(tmp_path)
    assert plot.write(tmp_path) == tmp_path / "plot.svg"


def lanes(panel: str) -> list[Bars]:
    return [Bars(panel, f"stage {stage}", kind, "fabric time (µs)", [(stage, 1.5), (4.0, 0.5)])
            for stage in range(2) for kind in ("compute", "tp")]


def test_bars_have_their_lanes_and_kinds_by_name_and_a_panel_for_each_run():
    drawn = [plot.draw(replace(result(), bars=[*lanes("iteration"), *lanes("iteration [dp=4]")])) for _ in range(2)]
    words = re.findall(r">([^<>]+)</text>", drawn[0])
    assert {"stage 0", "stage 1", "compute", "tp", "iteration", "iteration [dp=4]", "fabric time (µs)"} <= set(words), words
    assert words.count("stage 0") == 2 and drawn[0] == drawn[1]


def test_curves_and_bars_share_a_picture():
    drawn = plot.draw(replace(result(curve("queue (kB)", "leaf0:down0", 1, 2)), bars=lanes("iteration")))
    assert {"queue (kB)", "stage 1"} <= set(re.findall(r">([^<>]+)</text>", drawn))


def test_bars_alone_are_worth_a_picture_and_come_back_from_the_file(tmp_path: Path):
    stored = replace(result(), bars=lanes("iteration"))
    stored.write(tmp_path)
    assert plot.write(tmp_path) == tmp_path / "plot.svg"
    assert plot.draw(read(tmp_path)) == plot.draw(stored)


def test_axes_are_logarithmic_where_the_series_say_so():
    def words(log: bool) -> set[str]:
        curve = Series("time (µs)", "ring", "size (bytes)", [1024.0, 1024.0**2], [1.0, 10_000.0], log=log)
        return set(re.findall(r">([^<>]+)</text>", plot.draw(result(curve))))

    assert "10000" in words(log=False), words(log=False)
    assert "10000" not in words(log=True), words(log=True)
