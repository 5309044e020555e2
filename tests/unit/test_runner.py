"""Promises about running a scenario, on a fabric that only remembers what was done to it."""

from __future__ import annotations

import contextlib
import gc
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from emu.errors import FabricError, UsageError
from emu.measure.metric import Metric
from emu.report import result as results
from emu.report import table
from emu.report.progress import Progress
from emu.scale import Scale
from emu.scenario import loader
from emu.scenario.runner import Finished, Runner

ECHO = str(Path(__file__).parent / "fixtures" / "echo.py")
QUIET = Progress(Console(file=io.StringIO()))


class FakeFabric(contextlib.AbstractContextManager):
    scale = Scale(dilation=50)

    def __init__(self, topology, log: list) -> None:
        self.topology, self.log = topology, log

    def __enter__(self):
        self.log.append("built")
        return self

    def __exit__(self, *_exception):
        self.log.append("destroyed")


def run_echo(
    *settings: str, out: Path | None = None, log: list | None = None, scenario=None, seed: int = 1
) -> Finished:
    scenario = scenario or loader.load(ECHO)
    log = [] if log is None else log
    return Runner(
        scenario=scenario,
        choice=scenario.parameters.choose(settings, seed=seed),
        progress=QUIET,
        clock="real",
        build=lambda scenario, p, phase: FakeFabric(scenario.topology(p), log),
        out=out,
    ).run()


def stored(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_a_run_that_holds_ends_with_0_and_everything_in_its_result(tmp_path):
    finished = run_echo("senders=4", "kmin_bytes=64k", out=tmp_path, seed=9)
    document = stored(tmp_path)
    assert finished.exit_code == 0, finished
    assert document["parameters"]["senders"] == 4 and document["parameters"]["kmin_bytes"] == 64_000
    assert (document["seed"], document["clock"], document["dilation"]) == (9, "real", 50)
    assert document["metrics"] == {"ecn_marked_packets": {"value": 4, "unit": "packets"}}
    assert document["rows"] == [{"senders": 4, "share": 0.25}]
    assert document["fidelity"]["valid"] is True
    assert set(document["timing"]) == {"build_s", "run_s", "destroy_s"}


def test_each_combination_has_a_fabric_of_its_own_and_a_row_led_by_what_varied(tmp_path):
    log = []
    finished = run_echo("load=0.5,1.2", "lb=ecmp,spray", out=tmp_path, log=log)
    assert [step for step in log if isinstance(step, str)] == ["built", "destroyed"] * 4
    assert [list(row)[:2] for row in finished.result.rows] == [["load", "lb"]] * 4
    assert [(row["load"], row["lb"]) for row in finished.result.rows] == [
        (0.5, "ecmp"),
        (0.5, "spray"),
        (1.2, "ecmp"),
        (1.2, "spray"),
    ]
    assert finished.result.warnings == ["host was busy [load=1.2, lb=ecmp]", "host was busy [load=1.2, lb=spray]"]
    assert [check.name for check in finished.result.checks][:2] == [
        "rate reached [load=0.5, lb=ecmp]",
        "rate reached [load=0.5, lb=spray]",
    ]


def test_metrics_are_those_of_the_first_combination():
    assert run_echo("senders=3,5").result["ecn_marked_packets"].value == 3


def test_a_missed_fidelity_check_ends_with_4_and_expect_is_not_asked(tmp_path):
    scenario = replace(
        loader.load(ECHO), expect=lambda result: pytest.fail("asked about figures nobody should believe")
    )
    finished = run_echo("mode=unfit", out=tmp_path, scenario=scenario)
    assert finished.exit_code == 4
    assert stored(tmp_path)["fidelity"]["valid"] is False


def test_an_unmet_expectation_ends_with_1_and_its_numbers(tmp_path):
    finished = run_echo("mode=unmet", out=tmp_path)
    assert (finished.exit_code, finished.failure) == (1, "marked 8 packets, expected 0")
    assert stored(tmp_path)["fidelity"]["valid"] is True


def test_an_assertion_without_words_is_told_by_its_line():
    def expect(result):
        raise AssertionError

    failure = run_echo(scenario=replace(loader.load(ECHO), expect=expect)).failure
    assert failure == "not true: raise AssertionError"


def test_ctrl_c_keeps_what_was_measured_and_marks_it_incomplete(tmp_path):
    log = []
    finished = run_echo("mode=interrupt", "load=0.5,1.2,1.5", out=tmp_path, log=log)
    document = stored(tmp_path)
    assert finished.exit_code == 130
    assert [row["load"] for row in document["rows"]] == [0.5]
    assert document["fidelity"]["valid"] is False
    completed = document["fidelity"]["checks"][-1]
    assert (completed["name"], completed["value"], completed["limit"], completed["ok"]) == (
        "run completed",
        1,
        3,
        False,
    )
    assert log[-1] == "destroyed", log


def test_a_run_stopped_in_its_first_combination_still_says_how_slow_the_links_were(tmp_path):
    assert run_echo("mode=interrupt", "load=2", out=tmp_path).exit_code == 130
    assert (stored(tmp_path)["dilation"], stored(tmp_path)["rows"]) == (50, [])


def test_a_run_that_dies_leaves_its_rows_and_an_invalid_result_in_place_of_an_older_one(tmp_path):
    run_echo(out=tmp_path)
    log = []

    def die_second(scenario, p, phase):
        if log:
            raise FabricError("leaf0-up3: the kernel refused")
        return FakeFabric(scenario.topology(p), log)

    scenario = loader.load(ECHO)
    runner = Runner(
        scenario=scenario,
        choice=scenario.parameters.choose(["load=0.5,0.9"]),
        progress=QUIET,
        clock="real",
        build=die_second,
        out=tmp_path,
    )
    with pytest.raises(FabricError):
        runner.run()
    document = stored(tmp_path)
    assert [row["load"] for row in document["rows"]] == [0.5]
    assert document["fidelity"]["valid"] is False


def test_the_fabric_is_destroyed_when_the_scenario_raises():
    log = []
    with pytest.raises(ZeroDivisionError):
        run_echo("mode=crash", log=log)
    assert log == ["built", "destroyed"]


def test_a_setting_that_nothing_reads_makes_the_run_invalid_but_a_default_does_not():
    deaf = run_echo("mode=deaf", "kmin_bytes=64k")
    assert deaf.exit_code == 4
    assert "kmin_bytes" in deaf.result.failed_checks[0].note
    assert run_echo("mode=deaf").exit_code == 0
    assert run_echo("mode=deaf,pass", "kmin_bytes=64k").exit_code == 0, "one combination that reads it is enough"


def test_an_unwritable_out_is_found_out_before_anything_is_built(tmp_path):
    (tmp_path / "file").write_text("")
    log = []
    with pytest.raises(UsageError, match="--out"):
        run_echo(out=tmp_path / "file", log=log)
    assert log == []


def test_a_run_that_returns_no_outcome_is_named():
    with pytest.raises(UsageError, match="echo: run.. returned NoneType, not an Outcome"):
        run_echo(scenario=replace(loader.load(ECHO), run=lambda fabric, p: None))


def test_what_all_rows_say_together_is_concluded_once_stored_and_shown(tmp_path):
    asked = []

    def conclude(result):
        asked.append(len(result.rows))
        return [Metric("crossover_bytes", 4096, "bytes", note="of three rows")]

    finished = run_echo("load=0.1,0.2,0.3", out=tmp_path, scenario=replace(loader.load(ECHO), conclude=conclude))
    assert asked == [3] and finished.result.conclusions["crossover_bytes"].value == 4096, finished.result.conclusions
    assert results.read(tmp_path).conclusions == finished.result.conclusions
    shown = io.StringIO()
    table.print_result(finished.result, (), Console(file=shown, width=100))
    assert "crossover_bytes" in shown.getvalue() and "4,096" in shown.getvalue(), shown.getvalue()


def test_the_garbage_collector_rests_during_a_run_and_only_then():
    states = []
    scenario = loader.load(ECHO)
    run_echo(scenario=replace(scenario, run=lambda fabric, p: (states.append(gc.isenabled()), scenario.run(fabric, p))[1]))
    with pytest.raises(ZeroDivisionError):
        run_echo("mode=crash")
    assert states == [False] and gc.isenabled(), (states, gc.isenabled())
