"""Promises about result.json: the schema users rely on, the same text for the same run, whole or not at all."""

from __future__ import annotations

import json
import math
import os

import pytest

from emu.errors import RailbedError, UsageError
from emu.measure.metric import Check, Metric, Series
from emu.report import result as results
from emu.report.result import Result


def example(**changes: object) -> Result:
    fields = {
        "scenario": "incast_ecn",
        "seed": 1,
        "parameters": {"rate_gbps": 400, "lb": ["ecmp", "spray"]},
        "clock": "virtual",
        "kernel": "6.1.0",
        "dilation": 100,
        "checks": [Check("rate", 0.99, 0.95, ok=True, unit="of asked")],
        "metrics": {name: Metric(name, 3, "packets") for name in ("ecn_marked_packets", "dropped_packets")},
        "rows": [{"lb": "spray", "dropped_packets": 0}, {"lb": "ecmp", "dropped_packets": 1}],
        "warnings": ["busy"],
        "timing": {"build_s": 0.5, "run_s": 1.0, "destroy_s": 0.1},
    }
    return Result(**(fields | changes))


def test_result_has_the_schema_of_the_contract():
    document = json.loads(example().to_json())
    assert list(document) == [
        "schema",
        "scenario",
        "seed",
        "parameters",
        "clock",
        "kernel",
        "dilation",
        "fidelity",
        "metrics",
        "rows",
        "warnings",
        "timing",
    ]
    assert document["schema"] == 1
    assert document["fidelity"] == {
        "valid": True,
        "checks": [{"name": "rate", "value": 0.99, "limit": 0.95, "ok": True, "unit": "of asked"}],
    }
    assert document["metrics"]["ecn_marked_packets"] == {"value": 3, "unit": "packets"}


def test_text_does_not_depend_on_the_order_things_were_measured_in_but_rows_keep_theirs():
    one, other = example(), example()
    other.metrics = dict(reversed(other.metrics.items()))
    other.parameters = dict(reversed(other.parameters.items()))
    assert one.to_json() == other.to_json()
    other.rows.reverse()
    assert one.to_json() != other.to_json()


def test_what_is_written_is_what_is_read(tmp_path):
    written = example()
    written.write(tmp_path / "new" / "folder")
    assert results.read(tmp_path / "new" / "folder") == written
    assert os.listdir(tmp_path / "new" / "folder") == ["result.json"]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_and_named(number):
    with pytest.raises(RailbedError, match=r"rows\[0\]\.share is"):
        example(rows=[{"share": number}]).to_json()
    with pytest.raises(RailbedError, match=r"metrics\.x\.value is"):
        example(metrics={"x": Metric("x", number, "B/s")}).to_json()


def test_a_failed_write_leaves_the_old_file_whole(tmp_path):
    example().write(tmp_path)
    before = (tmp_path / "result.json").read_bytes()
    with pytest.raises(RailbedError):
        example(rows=[{"share": math.nan}]).write(tmp_path)
    assert (tmp_path / "result.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_folder_that_cannot_be_written_is_the_users_mistake(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--out .*give a folder"):
        example().write(tmp_path / "file")


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "not a Railbed result"),
        ("[]", "not a Railbed result"),
        ("{}", "'schema' is missing"),
        ('{"schema": 2}', "schema 2, this version reads schema 1"),
        ('{"schema": 1}', "'scenario' is missing"),
    ],
)
def test_a_file_that_is_no_result_is_named_with_what_is_wrong(tmp_path, text, complaint):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(UsageError, match=complaint) as caught:
        results.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_without_a_result_is_named(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        results.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    "ok, expectation_failed, code",
    [(True, False, 0), (True, True, 1), (False, False, 4), (False, True, 4)],
    ids=["believable", "expectation missed", "fidelity missed", "both: fidelity weighs more"],
)
def test_exit_code_tells_the_kind_of_failure(ok, expectation_failed, code):
    judged = example(checks=[Check("rate", 0.99, 0.95, ok=True), Check("drops outside", 3, 0, ok=ok)])
    assert judged.valid is ok
    assert results.exit_code(judged, expectation_failed) == code


def test_asking_for_a_metric_that_was_not_measured_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'ecn_marked_packets'"):
        _ = example()["ecn_marked_packet"]


def test_series_are_in_the_file_only_if_there_are_any_and_come_back():
    series = [Series("queue (kB)", "leaf0:down0", "fabric time (µs)", [0.0, 20.0], [1.5, 3.0])]
    assert "series" not in json.loads(example().to_json())
    assert Result.from_json(example(series=series).to_json()).series == series
