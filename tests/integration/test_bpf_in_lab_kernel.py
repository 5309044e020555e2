"""The counter's and the loader's promises hold in the lab kernel too: Linux 6.1, no BTF, BPF interpreter."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from emu.bpf import build
from emu.lab import guest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT_S = 120


@pytest.mark.needs_lab_kernel
@pytest.mark.parametrize("file", ["test_bpf_counter.py", "test_bpf_loader.py"])
def test_the_same_tests_pass_in_the_lab_kernel(file):
    build.build()  # here, not in the guest, where the compiler would run one virtual CPU
    output = io.BytesIO()
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--require-all", str(HERE / file)]
    code = guest.run(
        tests, seed=1, mem_bytes=1 << 30, limit_s=LIMIT_S, cwd=ROOT, host_folders=[ROOT], stdout=output, stderr=output
    )
    assert code == 0, f"pytest in the lab kernel ended with {code}:\n{output.getvalue().decode()[-3000:]}"
    assert b" passed" in output.getvalue()
