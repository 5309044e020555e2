"""A result for the terminal: the scenario's table, whether to believe it, and both rates side by side.

Coloured on a terminal, plain in a pipe. A number is never cut short: a table that is too wide is printed in parts that
repeat the leading columns.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emu.measure.metric import Check, Metric
from emu.report.result import Result, metric_to_json

PIPE_WIDTH = 100  # characters, when there is no terminal to ask
GAP = 3  # spaces between two columns
TEXT_WIDTH = 24  # characters; longer texts may be folded, numbers never
MISSING = "–"
Row = Mapping[str, object]


@dataclass(frozen=True)
class Column:
    """One column: the rows' key, its heading (the key unless given), and a format spec (`,d`, `.1%`) or a function."""

    key: str
    heading: str = ""
    format: str | Callable[[object], str] = ""

    def cell(self, row: Row) -> str:
        value = row.get(self.key)
        if value is None:
            return MISSING
        if callable(self.format):
            return self.format(value)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        return format(value, self.format) if self.format and numeric else plain(value)

    def lines(self, cells: Sequence[str], limit: int) -> list[str]:
        """The heading, folded at its words to the width that the cells need anyway, or to `limit`."""
        words = (self.heading or self.key.replace("_", " ")).split()
        width = max(min(max(map(len, cells)), limit), *map(len, words))
        return textwrap.wrap(" ".join(words), width, break_long_words=False)


def plain(value: object) -> str:
    """A value as people read it: 12,345 · 0.9512 · yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


def kilobytes(size_bytes: object) -> str:
    """Bytes as kB (10^3), for columns that would be too wide otherwise."""
    return f"{float(size_bytes) / 1000:,.0f}"


def make_console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is; colours only on a terminal."""
    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    width = PIPE_WIDTH if piped and not os.environ.get("COLUMNS") else None
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def print_result(result: Result, columns: Sequence[Column], console: Console) -> None:
    """Everything a run has to say, the verdict last, where the eye is."""
    line(console, _title(result), "bold")
    line(console, rates(result))
    shown = with_varied(result, columns)
    print_rows(result.rows, shown, console, leading=telling_apart(result.rows, shown))
    if len(result.rows) <= 1:  # of several rows the metrics are the first's alone: in the file, confusing on a screen
        print_metrics(list(result.metrics.values()), console)
    print_metrics(list(result.conclusions.values()), console)
    print_checks(result.checks, console)
    for warning in result.warnings:
        line(console, f"warning: {warning}", "yellow")
    if result.clock == "real":  # on the virtual clock work takes no time; who booted the lab kernel knows the wall's
        line(console, _timing(result), "dim")
    failed = "; ".join(check.name for check in result.failed_checks)
    if failed:
        line(console, f"NOT VALID: {failed}", "bold red")
    else:
        line(console, f"valid: all {len(result.checks)} fidelity checks met", "green")


def rates(result: Result) -> str:
    """Nominal and emulated rates, one line; the kernel's links run at the nominal rate over the dilation."""
    pairs = {}  # ordered and without repetition: (nominal rate, dilation)
    for row in result.rows or [{}]:
        rate_gbps = row.get("rate_gbps", result.parameters.get("rate_gbps"))
        pairs[rate_gbps, row.get("dilation", result.dilation)] = None
    return f"links: {'; '.join(_rates(*pair) for pair in pairs)}; times are fabric time{_on_the_wire(result)}"


def _on_the_wire(result: Result) -> str:
    """Whether packets had their payload and iCRC, where a run can choose."""
    named = {"payload": "payload", "icrc": "iCRC"}
    said = [f"{named[key]} {result.parameters[key]}" for key in named if isinstance(result.parameters.get(key), str)]
    return f"; {', '.join(said)}" if said else ""


def with_varied(result: Result, columns: Sequence[Column]) -> list[Column]:
    """The scenario's columns, led by the parameters that have one row each."""
    known = {column.key for column in columns}
    varied = [name for name, value in result.parameters.items() if isinstance(value, list) and name not in known]
    order = list(result.rows[0]) if result.rows else varied  # the runner puts them first, in stated order
    return [*(Column(name, name) for name in order if name in varied), *columns]


def telling_apart(rows: Sequence[Row], columns: Sequence[Column]) -> int:
    """How many of the first columns it takes to tell all rows apart; 1 if more than half of them wouldn't."""
    for count in range(1, len(columns) // 2 + 1):
        if len({tuple(column.cell(row) for column in columns[:count]) for row in rows}) == len(rows):
            return count
    return 1


def print_rows(rows: Sequence[Row], columns: Sequence[Column], console: Console, leading: int = 1) -> None:
    """A table of the columns that any row has a value for, in parts that repeat the `leading` ones when the console is too
    narrow."""
    present = [column for column in columns if any(row.get(column.key) is not None for row in rows)]
    if not present:
        return
    leading = sum(column in present for column in columns[:leading])
    shown = [_Shown.of(column, rows) for column in present]
    for part in _parts(shown, console.width, leading):
        table = _empty_table()
        height = max(len(column.heading) for column in part)
        for column in part:
            table.add_column(
                Text("\n" * (height - len(column.heading)) + "\n".join(column.heading)),
                justify="right" if column.numeric else "left",
                overflow="fold",
                no_wrap=column.numeric,
            )
        for cells in zip(*(column.cells for column in part), strict=True):
            table.add_row(*map(Text, cells))
        console.print(table)


def print_metrics(metrics: Sequence[Metric], console: Console) -> None:
    rows = [{"metric": metric.name} | metric_to_json(metric) | {"note": metric.note} for metric in metrics]
    columns = ["metric", "value", "unit", *(["note"] if any(metric.note for metric in metrics) else [])]
    print_rows(rows, [Column(key) for key in columns], console)


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """The fidelity section: a line per kind of check with its worst value, then every miss with its note, in red."""
    if not checks:
        return
    table = _empty_table()
    for heading in ("fidelity check", "worst", "limit", "unit", "met"):
        table.add_column(heading, justify="right" if heading in ("worst", "limit", "met") else "left", overflow="fold")
    for name, alike in _by_kind(checks).items():
        met = sum(check.ok for check in alike)
        worst = max(alike, key=lambda check: (not check.ok, _size(check.value)))
        cells = [name, plain(worst.value), plain(worst.limit), worst.unit, f"{met} of {len(alike)}"]
        table.add_row(*map(Text, cells), style=None if met == len(alike) else "red")
    console.print(table)
    for check in checks:
        if not check.ok:
            note = f" ({check.note})" if check.note else ""
            line(console, f"missed: {check.name}: {plain(check.value)}, limit {plain(check.limit)}{note}", "red")


def _by_kind(checks: Sequence[Check]) -> dict[str, list[Check]]:
    """The runner adds the combination in brackets to a check's name; without it the checks are of one kind."""
    kinds: dict[str, list[Check]] = {}
    for check in checks:
        kinds.setdefault(check.name.partition(" [")[0], []).append(check)
    return kinds


def _size(value: object) -> float:
    return abs(value) if isinstance(value, int | float) else 0.0


def line(console: Console, text: str, style: str | None = None) -> None:
    """One line that stays one line in a pipe."""
    console.print(Text(text, style=style or ""), soft_wrap=True)


def wrapped(console: Console, text: str, indent: int) -> None:
    """Secondary text, folded to the console's width."""
    console.print(Padding(Text(text, style="dim"), (0, 0, 0, indent)))


def _title(result: Result) -> str:
    return f"{result.scenario} · seed {result.seed} · {result.clock} clock · {result.kernel}"


def _timing(result: Result) -> str:
    parts = (f"{key.removesuffix('_s')} {spent_s:.1f} s" for key, spent_s in result.timing.items())
    return f"wall time: {', '.join(parts)}"


def _rates(rate_gbps: object, dilation: float) -> str:
    if not isinstance(
        rate_gbps, int | float
    ):  # not a parameter of this scenario, or the run stopped before its first row
        return f"dilation {dilation:g}"
    return f"{_rate(rate_gbps)} nominal, {_rate(rate_gbps / dilation)} emulated (dilation {dilation:g})"


def _rate(rate_gbps: float) -> str:
    return f"{rate_gbps:g} Gb/s" if rate_gbps >= 1 else f"{rate_gbps * 1000:.4g} Mb/s"


@dataclass(frozen=True)
class _Shown:
    """A column as it will stand on the screen."""

    heading: Sequence[str]
    cells: Sequence[str]
    numeric: bool

    @classmethod
    def of(cls, column: Column, rows: Sequence[Row]) -> _Shown:
        cells = [column.cell(row) for row in rows]
        numeric = any(isinstance(row.get(column.key), int | float) for row in rows)
        return cls(column.lines(cells, TEXT_WIDTH), cells, numeric)

    @property
    def needed(self) -> int:
        """Characters of width: all of a number, but text may be folded."""
        longest = max(map(len, self.cells))
        return GAP + max(*map(len, self.heading), longest if self.numeric else min(longest, TEXT_WIDTH))


def _empty_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")


def _parts(columns: Sequence[_Shown], width: int, leading: int) -> list[list[_Shown]]:
    """Columns in groups that fit `width`, each group led by the first `leading` ones."""
    lead = list(columns[:leading])
    parts = [list(lead)]
    for column in columns[leading:]:
        if sum(member.needed for member in [*parts[-1], column]) > width and len(parts[-1]) > len(lead):
            parts.append(list(lead))
        parts[-1].append(column)
    return parts
