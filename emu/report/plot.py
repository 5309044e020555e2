"""A result's series as a picture: one panel for each quantity, one curve for each series, a common x axis.

matplotlib takes half a second to import, so only a run that has something to draw imports it. The text of the picture
depends on the result alone.
"""

from __future__ import annotations

import io
from pathlib import Path

from emu.report import result as results
from emu.report.result import Result, write_text

FILE_NAME = "plot.svg"
WIDTH_INCHES, PANEL_INCHES = 9.0, 2.6
LEGEND_MAX = 12  # more curves than this have no names in the picture


def write(folder: Path | None) -> Path | None:
    """Draw the result of `folder` into plot.svg there; None if there is no folder, no result or nothing to draw."""
    if folder is None or not (folder / results.FILE_NAME).exists():
        return None
    result = results.read(folder)
    return write_text(folder, FILE_NAME, draw(result)) if result.series else None


def draw(result: Result) -> str:
    """The picture as SVG."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(series.panel for series in result.series))
    with matplotlib.rc_context({"svg.hashsalt": "railbed", "svg.fonttype": "none"}):
        figure = Figure(figsize=(WIDTH_INCHES, PANEL_INCHES * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw_panel(axis, panel, result)
        axes[-1].set_xlabel(result.series[0].x_label)
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
