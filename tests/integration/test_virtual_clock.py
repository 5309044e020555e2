"""The promises of `--clock virtual`: reproducible whatever the machine does, exact, and in agreement with the real clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emu.measure import fidelity
from emu.report import result
from emu.report.result import Result

pytestmark = pytest.mark.needs_lab_kernel
RUN_TIMEOUT_S = 300
SMALL = ("gpus_per_server=1", "senders=4", "leaf_down=5", "leaf_up=0", "load=1.1")
BUSY = "while True: pass"


def railbed(out: Path, scenario: str, *settings: str, clock: str = "virtual", seed: int = 1) -> Result:
    options = [f"--clock={clock}", f"--seed={seed}", f"--out={out}", *(f"--set={setting}" for setting in settings)]
    command = [sys.executable, "-m", "emu.cli", "run", scenario, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, f"{scenario} {settings}: exit {done.returncode}: {done.stderr.strip()[-500:]}"
    return result.read(out)


def without_timing(folder: Path) -> str:
    document = json.loads((folder / "result.json").read_text())
    del document["timing"]
    return json.dumps(document)


@contextmanager
def every_core_busy() -> Iterator[None]:
    hogs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def test_one_seed_gives_one_result_on_a_quiet_and_on_a_busy_machine_and_another_seed_another(tmp_path):
    quiet = railbed(tmp_path / "quiet", "incast_ecn", *SMALL)
    with every_core_busy():
        railbed(tmp_path / "busy", "incast_ecn", *SMALL)
    assert without_timing(tmp_path / "quiet") == without_timing(tmp_path / "busy")
    other = railbed(tmp_path / "other", "incast_ecn", *SMALL, seed=2)
    marks = [r.rows[0]["ecn_marked_packets"] for r in (quiet, other)]
    assert marks[0] != marks[1] and min(marks) > 0, f"marks of seeds 1 and 2: {marks}"


def test_a_transfer_takes_bytes_over_rate_plus_path_delay_within_half_a_percent_at_every_rate(tmp_path):
    rows = railbed(tmp_path, "point_to_point").rows
    assert [row["rate_gbps"] for row in rows] == [100, 400, 800, 1600]
    for row in rows:
        assert abs(row["off"]) <= 0.005, f"{row['rate_gbps']} Gb/s: {row['completion_us']} us, ideal {row['ideal_us']}"
        assert abs(row["off"]) <= row["rounding"], f"{row['rate_gbps']} Gb/s: off {row['off']:.5%}, stated {row['rounding']:.5%}"
        assert abs(row["rtt_off"]) <= 0.01, f"{row['rate_gbps']} Gb/s: RTT {row['rtt_ns']} ns, sum {row['rtt_ideal_ns']}"


@pytest.mark.needs_root
@pytest.mark.needs_marker
def test_both_clocks_agree_on_the_share_of_ce_packets(tmp_path):
    shares = {}
    for clock in ("real", "virtual"):
        run = railbed(tmp_path / clock, "incast_ecn", *SMALL[:-1], "load=1.5", clock=clock)
        shares[clock] = run.rows[0]["ce_share"]
        assert run.clock == clock
    assert abs(shares["real"] - shares["virtual"]) <= fidelity.RATE_TOLERANCE, f"CE shares: {shares}"
    assert 0.5 < shares["virtual"] < 1, f"a comparison of nothing: {shares}"
