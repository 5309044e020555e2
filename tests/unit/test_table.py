"""Promises about the screen: no number is cut, no colour codes in a pipe, and an invalid run says so in red."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from emu.measure.metric import Check, Metric
from emu.report import table
from emu.report.progress import Progress
from emu.report.result import Result
from emu.report.table import Column

WIDE = [Column(f"queue_{index}_depth_p99_bytes", format=",d") for index in range(14)]
BIG = 123_456_789_012


def printed(show, *, width: int = 100, terminal: bool = False) -> str:
    screen = io.StringIO()
    show(
        Console(
            file=screen,
            width=width,
            force_terminal=terminal,
            color_system="standard" if terminal else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
    )
    return screen.getvalue()


def example(**changes: object) -> Result:
    fields = {
        "scenario": "incast_ecn",
        "seed": 7,
        "parameters": {"rate_gbps": 400, "lb": ["ecmp", "spray"]},
        "clock": "real",
        "kernel": "6.1.0",
        "dilation": 200,
        "checks": [Check("rate reached", 0.99, 0.95, ok=True)],
        "rows": [{"lb": "ecmp", "share": 0.123}],
        "metrics": {"busbw_GBps": Metric("busbw_GBps", 41.5, "GB/s", note="factor 1.938")},
    }
    return Result(**(fields | changes))


def shown(result: Result, **screen) -> str:
    return printed(
        lambda console: table.print_result(result, [Column("share", "share marked", ".1%")], console), **screen
    )


@pytest.mark.parametrize("width", [40, 60, 79, 80, 81, 100, 137])
def test_every_number_of_a_wide_table_is_printed_whole_within_the_width(width):
    rows = [{column.key: BIG + index for index, column in enumerate(WIDE)}]
    text = printed(lambda console: table.print_rows(rows, WIDE, console), width=width)
    missing = [BIG + index for index in range(len(WIDE)) if f"{BIG + index:,}" not in text]
    assert not missing, f"cut short: {missing}"
    longest = max(map(len, text.splitlines()))
    assert longest <= width, f"{longest} characters in a line, {width} allowed"


def test_parts_of_a_wide_table_repeat_the_leading_column():
    rows = [{"lb": "spray"} | {column.key: BIG for column in WIDE}]
    text = printed(lambda console: table.print_rows(rows, [Column("lb"), *WIDE], console), width=80)
    parts = text.count("spray")
    assert parts >= 3, f"{parts} parts carry the leading column"


def test_long_texts_are_folded_before_a_table_is_cut_into_parts():
    rows = [
        {
            "feature": "sch_red",
            "works": "no",
            "for": "marking by the queue itself " * 2,
            "because": "kind is unknown " * 4,
        }
    ]
    text = printed(lambda console: table.print_rows(rows, [Column(key) for key in rows[0]], console), width=80)
    assert text.count("sch_red") == 1, text
    assert max(map(len, text.splitlines())) <= 80, text


def test_a_narrow_table_is_one_part():
    rows = [{"lb": "spray", "share": 0.5}]
    assert printed(lambda console: table.print_rows(rows, [Column("lb"), Column("share")], console)).count("lb") == 1


def test_a_column_that_no_row_has_a_value_for_is_not_printed_and_one_that_some_row_has_is():
    rows = [{"lb": "spray", "dropped": 0, "tax": None}, {"lb": "ddc", "credit": 1.25}]
    columns = [Column(key) for key in ("lb", "dropped", "credit", "moved", "tax")]
    text = printed(lambda console: table.print_rows(rows, columns, console))
    found = [column.key for column in columns if column.key in text]
    assert found == ["lb", "dropped", "credit"] and text.count("–") == 2, text


def test_a_table_of_no_values_is_not_printed():
    assert printed(lambda console: table.print_rows([{}, {"lb": None}], [Column("lb")], console)) == ""


@pytest.mark.parametrize(
    "value, spec, cell",
    [
        (0.1234, ".1%", "12.3%"),
        (1234567, ",d", "1,234,567"),
        (1234567, "", "1,234,567"),
        (0.951234, "", "0.9512"),
        (True, ",d", "yes"),
        (None, ",d", "–"),
        ("ecmp", ".1f", "ecmp"),
        (3, lambda value: "x" * value, "xxx"),
    ],
)
def test_cells_read_as_people_write(value, spec, cell):
    assert Column("key", format=spec).cell({"key": value}) == cell


def test_a_key_that_a_row_lacks_is_a_dash_and_not_a_zero():
    assert Column("busbw_GBps").cell({}) == "–"


def test_brackets_in_names_are_text_and_not_markup():
    assert "rate reached [lb=ecmp]" in shown(example(checks=[Check("rate reached [lb=ecmp]", 1, 1, ok=False)]))


def test_checks_of_one_kind_take_one_line_with_the_worst_value_and_every_miss_one_of_its_own():
    checks = [Check(f"rate off by [load={load}]", off, 0.02, ok=off <= 0.02, note=f"at {load}")
              for load, off in ((0.5, 0.001), (0.9, 0.03), (1.5, 0.005))]
    text = shown(example(checks=checks))
    assert "2 of 3" in text and "0.03" in text and "0.001" not in text, text
    assert "missed: rate off by [load=0.9]: 0.03, limit 0.02 (at 0.9)" in text, text


def test_a_valid_result_shows_both_rates_and_says_it_is_valid():
    text = shown(example())
    assert "400 Gb/s nominal, 2 Gb/s emulated (dilation 200" in text, text
    assert "12.3%" in text and "factor 1.938" in text and "seed 7" in text
    assert "valid: all 1 fidelity checks met" in text
    assert "NOT VALID" not in text


def test_each_combination_of_rate_and_dilation_is_stated_once():
    rows = [{"rate_gbps": rate, "dilation": dilation} for rate, dilation in ((100, 200), (400, 1000), (400, 1000))]
    assert table.rates(example(parameters={"rate_gbps": [100, 400]}, rows=rows)) == (
        "links: 100 Gb/s nominal, 500 Mb/s emulated (dilation 200); "
        "400 Gb/s nominal, 400 Mb/s emulated (dilation 1000); times are fabric time"
    )


def test_a_rate_below_one_gigabit_is_shown_in_megabits():
    assert "100 Mb/s emulated" in table.rates(example(dilation=4000))


def test_varied_parameters_lead_the_table():
    columns = table.with_varied(example(), [Column("share")])
    assert [column.key for column in columns] == ["lb", "share"]


def test_an_invalid_result_is_red_on_a_terminal_and_names_every_missed_check():
    bad = example(checks=[Check("rate reached", 0.5, 0.95, ok=False), Check("drops outside queues", 3, 0, ok=False)])
    text = shown(bad, terminal=True)
    verdict = next(line for line in text.splitlines() if "NOT VALID" in line)
    assert "rate reached; drops outside queues" in verdict
    assert "\x1b[1;31m" in verdict, f"not red: {verdict!r}"


def test_a_pipe_gets_no_colour_codes_but_the_same_verdict():
    bad = example(checks=[Check("rate reached", 0.5, 0.95, ok=False)])
    text = shown(bad)
    assert "\x1b" not in text
    assert "NOT VALID: rate reached" in text and "missed: rate reached" in text


def test_warnings_stay_one_line_each():
    text = shown(example(warnings=["host CPU busy " * 20]), width=80)
    assert len([line for line in text.splitlines() if "host CPU busy" in line]) == 1


def test_progress_without_a_terminal_is_one_plain_line_per_phase():
    def show(console: Console) -> None:
        with Progress(console) as progress, progress.phase("building the fabric", total=3) as phase:
            for _ in range(3):
                phase.advance()

    assert printed(show) == "building the fabric ...\n"


def test_progress_on_a_terminal_shows_the_phase_and_its_nested_one():
    def show(console: Console) -> None:
        with Progress(console) as progress, progress.phase("building"), progress.phase("links", total=2) as phase:
            phase.advance()

    text = printed(show, terminal=True)
    assert "building" in text and "links" in text, repr(text)


def test_as_many_columns_lead_as_it_takes_to_tell_the_rows_apart():
    columns = [Column(key) for key in ("pxn", "size", "time", "marks", "drops", "bytes")]
    rows = [dict(zip(("pxn", "size", "time"), row, strict=True)) for row in (("off", 1, 9), ("off", 2, 9), ("on", 1, 9))]
    assert table.telling_apart(rows, columns) == 2
    assert table.telling_apart(rows[1:], columns) == 1
    assert table.telling_apart([*rows, rows[0]], columns) == 1, "no number of columns does it"
