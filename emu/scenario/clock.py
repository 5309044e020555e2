"""The two clocks: `real` runs here, as root; `virtual` runs the same command again inside the lab kernel.

Only this file knows the difference. The guest's side is told by the environment that it is inside.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from emu.errors import MissingFeature

REAL, VIRTUAL = "real", "virtual"
INSIDE = "RAILBED_LAB"  # set by emu.lab.guest
GUEST_MEM_BYTES = 2 << 30  # 8,192 GPUs took 1.8 GB (docs/design.md); pages are only used when touched
GUEST_LIMIT_S = 3600  # wall time after which a guest is stuck rather than slow


def inside_guest() -> bool:
    """Whether this process already runs in the lab kernel."""
    return os.environ.get(INSIDE) == "1"


def must_reexecute(clock: str) -> bool:
    """Whether the command is to be run again inside the lab kernel."""
    return clock == VIRTUAL and not inside_guest()


def need_root() -> None:
    """MissingFeature unless this process may make namespaces."""
    if os.geteuid() != 0:
        raise MissingFeature(
            "network namespaces take root: put `sudo` before the command, or use `--clock virtual`, which needs no root"
        )


def reexecute(arguments: Sequence[str], seed: int, folders: Sequence[Path]) -> int:
    """`railbed ARGUMENTS` inside the lab kernel, in the same folder, with `folders` in sight; its exit code."""
    from emu.lab import guest  # only this clock needs the lab kernel

    command = [sys.executable, "-m", "emu.cli", *arguments]
    python_path = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    return guest.run(
        command, seed=seed, mem_bytes=GUEST_MEM_BYTES, limit_s=GUEST_LIMIT_S, env=python_path, host_folders=folders
    )
