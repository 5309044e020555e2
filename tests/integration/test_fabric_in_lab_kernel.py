"""The live fabric's promises hold in the lab kernel too: Linux 6.1 with RED and netem, no hash seed per switch."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from emu.lab import guest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 240


@pytest.mark.needs_lab_kernel
def test_the_tests_of_the_fabric_pass_in_the_lab_kernel_with_red_and_netem():
    output = io.BytesIO()
    tests = [sys.executable, "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", str(HERE / "test_fabric.py")]
    code = guest.run(
        tests, seed=1, mem_bytes=1 << 30, limit_s=LIMIT_S, cwd=ROOT, host_folders=[ROOT], stdout=output, stderr=output
    )
    said = output.getvalue().decode()
    assert code == 0, f"pytest in the lab kernel ended with {code}:\n{said[-3000:]}"
    for promise in ("test_red_is_asked_for_instantaneous_ecn_marking", "test_a_delay_is_a_missing_feature"):
        assert f"PASSED tests/integration/test_fabric.py::{promise}" in said, said[-3000:]
