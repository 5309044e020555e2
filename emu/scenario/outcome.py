"""What a scenario's run() hands back for one combination of parameters; the runner makes the Result from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.measure.metric import Bars, Check, Metric, Series


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`rows` are lines of the scenario's table, keyed as its COLUMNS; a warning is a reason to doubt the figures;
    `series` and `bars` are drawn into plot.svg."""

    metrics: Sequence[Metric] = ()
    rows: Sequence[Mapping[str, object]] = ()
    checks: Sequence[Check] = ()
    warnings: Sequence[str] = ()
    series: Sequence[Series] = ()
    bars: Sequence[Bars] = ()
