"""What a test may need and how it is told that the machine has not got it.

A test says `@pytest.mark.needs_red`; where the need is missing it is skipped with a reason that names the missing thing
and the way out. With `--require-all` (CI) it fails instead, so that nothing important is skipped unseen. Each need is
looked into once per session, and only when a test asks.
"""

from __future__ import annotations

import collections
import functools
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emu.report import result
from emu.report.result import Result

RUN_TIMEOUT_S = 300
SKIPPED_NEEDS: collections.Counter[str] = collections.Counter()
RED = "tc qdisc add dev lo root red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 bandwidth 10mbit"
NETEM = "tc qdisc add dev lo root netem loss 1%"


def lacks_root() -> str | None:
    return None if os.geteuid() == 0 else "root rights; run the tests with sudo, or in the lab kernel"


def lacks_red() -> str | None:
    return lacks_qdisc("the RED queue, sch_red", RED)


def lacks_netem() -> str | None:
    return lacks_qdisc("the netem queue, sch_netem", NETEM)


def lacks_qdisc(what: str, command: str) -> str | None:
    """Asked of the kernel itself, in a network namespace that ends with the question."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    asked = subprocess.run([*unshare, "sh", "-c", command], capture_output=True, text=True, timeout=30)
    if asked.returncode == 0:
        return None
    answer = asked.stderr.strip().splitlines()[-1:] or ["no answer"]
    return f"{what} ({answer[0]}); load its module, or run in the lab kernel: railbed kernel build"


def lacks_bpf_marker() -> str | None:
    from emu.bpf import loader

    reason = loader.marker_supported()
    return None if reason is None else f"the BPF marker ({reason}); run as root on Linux 6.2 or newer with BTF"


def lacks_marker() -> str | None:
    red, bpf = lacking("needs_red"), lacking("needs_bpf_marker")
    return None if red is None or bpf is None else f"any ECN marker: {red}; {bpf}"


def lacks_hash_seed() -> str | None:
    path = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed")
    return None if path.exists() else f"an ECMP hash seed per switch ({path}); run on Linux 6.11 or newer"


def lacks_real_clock() -> str | None:
    from emu.scenario.clock import inside_guest

    return "a clock that runs while programs do; run outside the lab kernel" if inside_guest() else None


def lacks_virtual_clock() -> str | None:
    from emu.scenario.clock import inside_guest

    return None if inside_guest() else "the virtual clock; run in the lab kernel: ./lab test integration"


def lacks_lab_kernel() -> str | None:
    from emu.lab import kernel

    return None if kernel.path() is not None else "the lab kernel; build it: railbed kernel build"


def lacks_tshark() -> str | None:
    return None if shutil.which("tshark") else "tshark; install it: ./lab setup"


LACKS = {
    "needs_root": lacks_root,
    "needs_red": lacks_red,
    "needs_netem": lacks_netem,
    "needs_bpf_marker": lacks_bpf_marker,
    "needs_marker": lacks_marker,
    "needs_hash_seed": lacks_hash_seed,
    "needs_real_clock": lacks_real_clock,
    "needs_virtual_clock": lacks_virtual_clock,
    "needs_lab_kernel": lacks_lab_kernel,
    "needs_tshark": lacks_tshark,
}


@functools.cache
def lacking(need: str) -> str | None:
    """Why `need`, one of LACKS, is not met on this machine, or None."""
    return LACKS[need]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-all", action="store_true", help="fail a test whose need is missing, don't skip it")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """First, so that no fixture is built for a test that can't run."""
    for need in LACKS:
        if item.get_closest_marker(need) is None or (reason := lacking(need)) is None:
            continue
        if item.config.getoption("--require-all"):
            pytest.fail(f"{need}: this machine lacks {reason}", pytrace=False)
        SKIPPED_NEEDS[need] += 1
        pytest.skip(f"{need}: this machine lacks {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts = ", ".join(f"{need} {count}" for need, count in sorted(SKIPPED_NEEDS.items()))
    terminalreporter.write_line(f"{SKIPPED_NEEDS.total()} skipped" + (f": {counts}" if counts else ""))


@pytest.fixture
def run_scenario(tmp_path: Path) -> Callable[..., tuple[int, Result]]:
    """run_scenario(name, *settings, seed=1) -> (exit code, result): a run of the real command in the kernel we are in."""
    from emu.scenario.clock import REAL, VIRTUAL, inside_guest

    def run(name: str, *settings: str, seed: int = 1) -> tuple[int, Result]:
        chosen = [f"--set={setting}" for setting in settings]
        clock = VIRTUAL if inside_guest() else REAL
        command = [sys.executable, "-m", "emu.cli", "run", name, f"--clock={clock}", f"--seed={seed}", f"--out={tmp_path}"]
        done = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
        assert done.returncode in (0, 1, 4), f"exit {done.returncode}: {done.stderr.strip()}"
        return done.returncode, result.read(tmp_path)

    return run


@pytest.fixture
def run_id() -> str:
    """6 hex digits, new for each test, for the names of all that the test makes."""
    return secrets.token_hex(3)
