"""A result as a picture: a panel for each quantity with a curve for each series, one for each set of bars with its lanes.

matplotlib takes half a second to import, so only a run that has something to draw imports it. The text of the picture
depends on the result alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from emu.measure.metric import Bars
from emu.report import result as results
from emu.report.result import Result, write_text

FILE_NAME = "plot.svg"
WIDTH_INCHES, PANEL_INCHES, LANE_INCHES = 9.0, 2.6, 0.5
COLOURS = ("tab:grey", "tab:blue", "tab:green", "tab:red", "tab:orange", "tab:purple", "tab:brown")
LEGEND_MAX = 12  # more curves than this have no names in the picture


def write(folder: Path | None) -> Path | None:
    """Draw the result of `folder` into plot.svg there; None if there is no folder, no result or nothing to draw."""
    if folder is None or not (folder / results.FILE_NAME).exists():
        return None
    result = results.read(folder)
    return write_text(folder, FILE_NAME, draw(result)) if result.series or result.bars else None


def draw(result: Result) -> str:
    """The picture as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    curves = list(dict.fromkeys(series.panel for series in result.series))
    charts = _charts(result)
    heights = [PANEL_INCHES] * len(curves) + [1 + LANE_INCHES * len(_lanes(chart)) for chart in charts]
    with matplotlib.rc_context({"svg.hashsalt": "railbed", "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=not charts, squeeze=False, height_ratios=heights)[:, 0]
        for axis, panel in zip(axes, curves, strict=False):
            _draw_panel(axis, panel, result)
            axis.set_xlabel(result.series[0].x_label if panel == curves[-1] else "")
        for axis, chart in zip(axes[len(curves):], charts, strict=True):
            _draw_chart(axis, chart)
        figure.suptitle(f"{result.scenario} · seed {result.seed} · {result.clock} clock")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _draw_panel(axis, panel: str, result: Result) -> None:
    curves = [series for series in result.series if series.panel == panel]
    for series in curves:
        axis.plot(series.x, series.y, label=series.name, linewidth=1, marker="." if series.log else None)
    axis.set_ylabel(panel)
    if any(series.log for series in curves):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    if len(curves) <= LEGEND_MAX:
        axis.legend(fontsize="small", loc="best" if curves[0].log else "upper right")


def _charts(result: Result) -> list[list[Bars]]:
    panels = dict.fromkeys(bars.panel for bars in result.bars)
    return [[bars for bars in result.bars if bars.panel == panel] for panel in panels]


def _lanes(chart: Sequence[Bars]) -> list[str]:
    return list(dict.fromkeys(bars.lane for bars in chart))


def _draw_chart(axis, chart: Sequence[Bars]) -> None:
    """Lanes from top to bottom in their order, a colour for each kind."""
    lanes = _lanes(chart)
    kinds = sorted({bars.kind for bars in chart})
    for kind in kinds:
        colour = COLOURS[kinds.index(kind) % len(COLOURS)]
        for place, bars in enumerate(bars for bars in chart if bars.kind == kind):
            row = lanes.index(bars.lane)
            axis.broken_barh(bars.spans, (row - 0.4, 0.8), facecolors=colour, label=None if place else kind)
    axis.set_yticks(range(len(lanes)), lanes)
    axis.set_ylim(len(lanes) - 0.5, -0.5)
    axis.set_xlabel(chart[0].x_label)
    axis.set_title(chart[0].panel, fontsize="small")
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
