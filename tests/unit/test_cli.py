"""Promises about the command line: each mistake is one line on stderr that says what would fit, and its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest

import emu
from emu import cli
from emu.errors import MissingFeature
from emu.scale import Scale
from emu.scenario import bench, live, loader

FIXTURES = Path(__file__).parent / "fixtures"
ECHO = str(FIXTURES / "echo.py")
GOOD = (FIXTURES / "echo.py").read_text()


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch):
    """Scenarios of our own, a fabric that only remembers, and the rights of root."""

    @contextlib.contextmanager
    def fabric(scenario, p, phase, *, clock):
        scenario.topology(p)
        yield types.SimpleNamespace(scale=Scale(dilation=10), log=[])

    monkeypatch.setattr(loader, "FOLDERS", (FIXTURES,))
    monkeypatch.setattr(live, "build", fabric)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("RAILBED_LAB", raising=False)
    monkeypatch.delenv("RAILBED_TRACEBACK", raising=False)


@pytest.fixture
def railbed(capsys):
    """Run the command line; (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def complaints(err: str) -> list[str]:
    """Lines of stderr that are not progress."""
    return [line for line in err.splitlines() if not line.endswith(" ...")]


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        ("rnu echo", 2, ["'rnu'", "did you mean 'run'", "probe"]),
        ("kernel biuld", 2, ["'biuld'", "did you mean 'build'", "info"]),
        ("--sed 3", 2, ["--sed", "railbed --help"]),
        ("run", 2, ["missing argument 'SCENARIO'", "railbed run --help"]),
        ("run ecno", 2, ["unknown scenario 'ecno'", "did you mean 'echo'", "allowed: echo"]),
        ("run nowhere/ecoh.py", 2, ["no file nowhere/ecoh.py", "did you mean 'echo'"]),
        ("run echo --sed 3", 2, ["'--sed'", "did you mean '--seed'"]),
        ("run echo --seed -1", 2, ["--seed", "-1", "0<=x<=4294967295"]),
        ("run echo --seed many", 2, ["--seed", "'many'", "integer"]),
        ("run echo --clock vritual", 2, ["--clock", "'vritual'", "'real'", "'virtual'"]),
        ("run echo --set sender=3", 2, ["unknown parameter 'sender'", "did you mean 'senders'"]),
        ("run echo --set lb=ecpm", 2, ["'ecpm'", "did you mean 'ecmp'"]),
        ("run echo --set senders=0", 2, ["senders", "out of range", "from 1 up to 64"]),
        ("run echo --set kmin_bytes=64K", 2, ["kmin_bytes", "ambiguous", "64Ki"]),
        ("run echo --out /proc/nowhere", 2, ["--out /proc/nowhere", "may write to"]),
        ("run echo --set mode=unfit", 4, ["not valid", "rate reached", "0.99", "0.95"]),
        ("run echo --set mode=unmet", 1, ["expectation not met", "marked 8 packets, expected 0"]),
        ("run echo --set mode=interrupt --set load=2", 130, ["interrupted"]),
        ("run echo --set mode=crash", 70, ["ZeroDivisionError", "echo.py:", "a bug in the", "RAILBED_TRACEBACK=1"]),
        ("report", 2, ["missing argument", "DIR"]),
        ("report /nowhere", 2, ["/nowhere", "No such file"]),
        ("bench biuld", 2, ["unknown benchmark 'biuld'"]),
        ("shell ecno", 2, ["unknown scenario 'ecno'"]),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_fit(railbed, arguments, code, words):
    got, _out, err = railbed(*arguments.split())
    lines = complaints(err)
    assert got == code, f"exit code {got}, expected {code}: {err}"
    assert len(lines) == 1 and lines[0].startswith("railbed: "), err
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in {lines[0]!r}"


def test_a_good_run_prints_its_table_on_stdout_and_writes_its_result(railbed, tmp_path):
    code, out, err = railbed("run", "echo", "--set", "load=0.5,0.9", "--seed", "5", "--out", str(tmp_path))
    assert (code, complaints(err)) == (0, [])
    assert "25.0%" in out and "45.0%" in out and "seed 5" in out and "100 Gb/s nominal, 10 Gb/s emulated" in out
    assert json.loads((tmp_path / "result.json").read_text())["seed"] == 5


def test_a_path_is_as_good_as_a_name(railbed):
    assert railbed("run", ECHO)[0] == 0


def test_a_run_that_is_not_valid_still_shows_its_table_and_writes_its_result(railbed, tmp_path):
    code, out, _err = railbed("run", "echo", "--set", "mode=unfit", "--out", str(tmp_path))
    assert code == 4
    assert "NOT VALID: rate reached" in out
    assert json.loads((tmp_path / "result.json").read_text())["fidelity"]["valid"] is False


def test_without_root_the_real_clock_says_which_two_commands_help(railbed, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _out, err = railbed("run", "echo")
    assert code == 3
    assert "`sudo`" in err and "`--clock virtual`" in err and len(err.splitlines()) == 1, err


def test_mistakes_are_told_before_the_lab_kernel_boots_or_root_is_asked_for(railbed, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, _out, err = railbed("run", "echo", "--clock", "virtual", "--set", "senders=0")
    assert (code, "out of range" in err) == (2, True)


def fake_guest(monkeypatch, run) -> None:
    guest = types.ModuleType("emu.lab.guest")
    guest.run = run
    monkeypatch.setitem(sys.modules, "emu.lab.guest", guest)
    monkeypatch.setattr(sys.modules.setdefault("emu.lab", types.ModuleType("emu.lab")), "guest", guest, raising=False)


def test_the_virtual_clock_runs_the_same_command_in_the_guest_and_ends_as_it_ends(railbed, monkeypatch, tmp_path):
    calls = []

    def run(argv, **options):
        calls.append((argv, options))
        return 4

    fake_guest(monkeypatch, run)
    code, _out, _err = railbed(
        "run", "echo", "--clock", "virtual", "--seed", "3", "--set", "load=0.5,2", "--out", str(tmp_path)
    )
    ((argv, options),) = calls
    assert code == 4
    assert argv[-7:] == ["emu.cli", "run", ECHO, "--clock=virtual", "--seed=3", "--set=load=0.5,2", f"--out={tmp_path}"]
    assert options["seed"] == 3
    assert {tmp_path, FIXTURES} <= set(options["host_folders"]), options


def test_inside_the_guest_the_command_runs_here_and_is_labelled_virtual(railbed, monkeypatch, tmp_path):
    monkeypatch.setenv("RAILBED_LAB", "1")
    code, _out, _err = railbed("run", "echo", "--clock", "virtual", "--out", str(tmp_path))
    assert code == 0
    assert json.loads((tmp_path / "result.json").read_text())["clock"] == "virtual"


def test_a_missing_lab_kernel_is_exit_3_and_the_command_that_builds_it(railbed, monkeypatch):
    def run(argv, **options):
        raise MissingFeature("the lab kernel is not built: run `railbed kernel build`")

    fake_guest(monkeypatch, run)
    code, _out, err = railbed("run", "echo", "--clock", "virtual")
    assert (code, err) == (3, "railbed: the lab kernel is not built: run `railbed kernel build`\n")


def test_list_shows_each_scenario_with_its_question_and_defaults(railbed):
    code, out, _err = railbed("list")
    assert code == 0
    assert "echo" in out and "Does the command line hand the parameters through?" in out and "rate_gbps=100" in out


def test_list_survives_a_broken_scenario_and_names_it(railbed, monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("import nonsense_that_is_not_there\n")
    (tmp_path / "whole.py").write_text(GOOD)
    monkeypatch.setattr(loader, "FOLDERS", (tmp_path,))
    code, out, err = railbed("list")
    assert code == 0
    assert "whole" in out
    assert "broken" in err and "ModuleNotFoundError" in err and len(err.splitlines()) == 1, err


@pytest.mark.parametrize(
    "old, new, complaint",
    [
        ('"""Does', '_ = """Does', "no a docstring"),
        ("PARAMETERS = parameters.select(", "KNOBS = parameters.select(", "no PARAMETERS"),
        ("COLUMNS = [", "HEADINGS = [", "no COLUMNS"),
        ("def topology(p)", "def topology()", "no topology() with 1 argument"),
        ("def run(fabric, p)", "def go(fabric, p)", "no run() with 2 arguments"),
        ("def expect(result)", "def expected(result)", "no expect() with 1 argument"),
    ],
)
def test_a_scenario_that_lacks_a_part_is_refused_by_its_name(railbed, tmp_path, old, new, complaint):
    (tmp_path / "half.py").write_text(GOOD.replace(old, new, 1))
    code, _out, err = railbed("run", str(tmp_path / "half.py"))
    assert code == 2
    assert "scenario half" in err and complaint in err, err


def test_report_prints_stored_results_and_ends_with_4_if_one_is_not_valid(railbed, tmp_path):
    railbed("run", "echo", "--out", str(tmp_path / "good"))
    railbed("run", "echo", "--set", "mode=unfit", "--out", str(tmp_path / "bad"))
    assert railbed("report", str(tmp_path / "good"))[0] == 0
    code, out, _err = railbed("report", str(tmp_path / "good"), str(tmp_path / "bad"))
    assert code == 4
    assert out.count("25.0%") == 2 and "NOT VALID" in out


def test_bench_prints_and_writes_what_it_measured(railbed, monkeypatch, tmp_path):
    (tmp_path / "bench_build.py").write_text(
        "def run(progress):\n"
        "    return {'metrics': {'build_ratio_vs_mininet': {'value': 21.5, 'unit': 'x'}}, 'rows': [{'gpus': 256}]}\n"
    )
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    code, out, _err = railbed("bench", "build", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "build_ratio_vs_mininet" in out and "21.5" in out and "256" in out
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == {
        "name": "build",
        "metrics": {"build_ratio_vs_mininet": {"value": 21.5, "unit": "x"}},
        "rows": [{"gpus": 256}],
    }


def test_version_and_help_end_with_0(railbed):
    assert railbed("--version") == (0, f"railbed, version {emu.__version__}\n", "")
    for arguments in ((), ("--help",), ("run", "--help"), ("kernel", "--help")):
        code, out, err = railbed(*arguments)
        assert (code, err) == (0, ""), arguments
        assert "Usage:" in out


def test_the_trace_is_there_for_those_who_ask(railbed, monkeypatch):
    monkeypatch.setenv("RAILBED_TRACEBACK", "1")
    _code, _out, err = railbed("run", "echo", "--set", "mode=crash")
    assert "Traceback" in err and err.splitlines()[-1].startswith("railbed: ")


def test_a_polite_kill_unwinds_like_ctrl_c(railbed, monkeypatch):
    undone = []

    @contextlib.contextmanager
    def killed(scenario, p, phase, *, clock):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            yield types.SimpleNamespace(scale=Scale(dilation=10), log=[])
        finally:
            undone.append("fabric")

    monkeypatch.setattr(live, "build", killed)
    assert railbed("run", "echo")[0] == 130
    assert undone == ["fabric"]


def test_a_scenario_file_runs_alone_like_the_command():
    root = str(Path(emu.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, ECHO, "--set", "sender=3"],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2, ended.stderr
    assert "did you mean 'senders'" in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_the_guest_is_shown_the_folder_of_a_file_named_in_a_parameter(railbed, monkeypatch, tmp_path):
    calls = []
    fake_guest(monkeypatch, lambda argv, **options: calls.append(options) or 0)
    (tmp_path / "profile.json").write_text("{}")
    railbed("run", "echo", "--clock", "virtual", "--set", f"ecn_profile={tmp_path}/profile.json:NAME")
    assert tmp_path in calls[0]["host_folders"], calls


def test_a_cluster_that_cannot_be_is_refused_before_any_combination_is_built(railbed, tmp_path):
    (tmp_path / "small.py").write_text(
        GOOD.replace("def topology(p):\n", "def topology(p):\n    assert_fits(p)\n").replace(
            "def topology",
            "def assert_fits(p):\n    from emu.errors import TopologyError\n"
            "    if p.load > 1:\n        raise TopologyError(f'load={p.load} has no room')\n\n\ndef topology",
            1,
        )
    )
    code, _out, err = railbed("run", str(tmp_path / "small.py"), "--set", "load=0.5,2")
    assert (code, err) == (2, "railbed: load=2.0 has no room\n")
