"""The two clocks: `real` runs here, as root; `virtual` runs the same command again inside the lab kernel.

Only this file knows the difference. The guest's side is told by the environment that it is inside.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from emu.errors import MissingFeature
from emu.topology.model import Topology

REAL, VIRTUAL = "real", "virtual"
INSIDE = "RAILBED_LAB"  # set by emu.lab.guest
GUEST_BASE_BYTES = 512 << 20  # kernel, Python and its libraries; pages are only used when touched
GUEST_LINK_BYTES = 160 << 10  # a veth pair with its queues: 16,384 took 1.8 GB
GUEST_MAPS_BYTES = 256 << 20  # tables of the eBPF NICs (nic.h), whole from the start
GUEST_MESSAGE_BYTES, GUEST_MESSAGES_MAX = 640, 1 << 21  # of Python's objects; a ring AllReduce of n GPUs has 4n² with credits
GUEST_FULL_QUEUES, GUEST_OVERHEAD = 8, 3  # queues that may be full at once; memory a packet takes over its bytes
KILLED = 128 + signal.SIGKILL
GUEST_LIMIT_S = 3600  # wall time after which a guest is stuck rather than slow


def inside_guest() -> bool:
    """Whether this process already runs in the lab kernel."""
    return os.environ.get(INSIDE) == "1"


def must_reexecute(clock: str) -> bool:
    """Whether the command is to be run again inside the lab kernel."""
    return clock == VIRTUAL and not inside_guest()


def guest_memory_bytes(topology: Topology) -> int:
    """What the lab kernel needs for a cluster, from its description alone: the random numbers depend on it."""
    full = GUEST_FULL_QUEUES * GUEST_OVERHEAD * topology.queue.buffer_bytes
    messages = GUEST_MESSAGE_BYTES * min(GUEST_MESSAGES_MAX, 4 * topology.gpus**2)
    return GUEST_BASE_BYTES + GUEST_MAPS_BYTES + GUEST_LINK_BYTES * len(topology.links) + messages + full


def need_root() -> None:
    """MissingFeature unless this process may make namespaces."""
    if os.geteuid() != 0:
        raise MissingFeature(
            "network namespaces take root: put `sudo` before the command, or use `--clock virtual`, which needs no root"
        )


def reexecute(arguments: Sequence[str], seed: int, mem_bytes: int, folders: Sequence[Path]) -> int:
    """`railbed ARGUMENTS` inside the lab kernel, in the same folder, with `folders` in sight; its exit code.

    MemoryError if the guest had too little, whose kernel then kills what takes most.
    """
    from emu.lab import guest  # only this clock needs the lab kernel

    command = [sys.executable, "-m", "emu.cli", *arguments]
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])} | _terminal()
    code = guest.run(command, seed=seed, mem_bytes=mem_bytes, limit_s=GUEST_LIMIT_S, env=env, host_folders=folders)
    if code == KILLED:
        raise MemoryError
    return code


def _terminal() -> dict[str, str]:
    """The guest writes to a file; what it should know of our terminal goes by the environment."""
    if not sys.stdout.isatty():
        return {}
    return {"FORCE_COLOR": "1", "COLUMNS": str(shutil.get_terminal_size().columns)}
