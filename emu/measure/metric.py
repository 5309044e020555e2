"""What a run states: metrics (what was measured), series and bars (over time), fidelity checks (whether to believe it).

Never a bare number: every value carries its unit, and a note where the formula has an input (the busbw factor, say).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Value = bool | int | float | str


@dataclass(frozen=True)
class Metric:
    """One measured figure; `name` is a key of result.json (docs/design.md, the contract)."""

    name: str
    value: Value
    unit: str
    note: str = ""


@dataclass(frozen=True)
class Check:
    """One reason to believe the run or not: measured `value` against `limit`; a miss makes the run invalid."""

    name: str
    value: Value
    limit: Value
    ok: bool
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Series:
    """A curve: `y` against `x`, both finite. Series with the same `panel` (label of the y axis, with its unit) share one.

    `log`: both axes of its panel are logarithmic, so that only positive values are seen.
    """

    panel: str
    name: str
    x_label: str
    x: Sequence[float]
    y: Sequence[float]
    log: bool = False


@dataclass(frozen=True)
class Bars:
    """Times at which `lane` did something of `kind`: (start, length) each, in units of `x_label`. A `panel` has all its lanes."""

    panel: str
    lane: str
    kind: str
    x_label: str
    spans: Sequence[tuple[float, float]]
