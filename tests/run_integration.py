"""The integration suite where it can run: on this host what the host can do, and all of it but the host's own in the lab kernel.

    python tests/run_integration.py [pytest options]

An ordinary user has no host part; a machine without the lab kernel has no other part. What neither can run is skipped by name
(or, with --require-all, fails).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from emu.errors import RailbedError  # noqa: E402
from emu.lab import guest, kernel  # noqa: E402
from tests.conftest import LACKS, lacking  # noqa: E402

SUITE = "tests/integration"
HOST_ONLY = ("needs_lab_kernel", "needs_bpf_marker", "needs_real_clock")  # no lab in the lab, nor BTF
GUEST_BYTES = 3 << 30
GUEST_LIMIT_S = 2700  # wall time; CI has an hour in all


def main(options: Sequence[str]) -> int:
    """Exit code: 0 if both parts passed."""
    lab = kernel.path() is not None
    exits = []
    if lacking("needs_root") is None or not lab:
        exits.append(on_host(options, leave_to_lab=lab))
    if lab:
        exits.append(in_lab_kernel(options))
    return max(exits)


def on_host(options: Sequence[str], leave_to_lab: bool) -> int:
    """All tests whose needs are met here; if the lab kernel takes the others, they are not even selected."""
    missing = [need for need in LACKS if lacking(need)] if leave_to_lab else []
    if missing:
        print(f"integration tests on this host, without {', '.join(missing)} (the lab kernel runs those)", flush=True)
    chosen = " and ".join(f"not {need}" for need in missing)
    command = [sys.executable, "-m", "pytest", SUITE, *(["-m", chosen] if chosen else []), *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def in_lab_kernel(options: Sequence[str]) -> int:
    """Everything but what is about the host itself, on the virtual clock, with the real sch_red and sch_netem."""
    print("integration tests in the lab kernel", flush=True)
    chosen = " and ".join(f"not {need}" for need in HOST_ONLY)
    command = [sys.executable, "-m", "pytest", SUITE, "-m", chosen, "-p", "no:cacheprovider", *options]
    try:
        return guest.run(command, seed=1, mem_bytes=GUEST_BYTES, limit_s=GUEST_LIMIT_S, cwd=ROOT)
    except RailbedError as error:
        print(f"lab kernel: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
