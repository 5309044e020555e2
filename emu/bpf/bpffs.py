"""Where a run's programs and maps are pinned: a bpffs of the run's own, mounted at /run/railbed/bpf-<run id>.

Not the machine's /sys/fs/bpf, which may not be mounted and is not ours: a mount of our own holds all pins of one run
and nothing else, and goes as one, also after `kill -9`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from emu.bpf import tools
from emu.errors import FabricError, MissingFeature, UsageError

STATE_DIR = Path("/run/railbed")
RUN_ID = re.compile(r"[0-9a-z]{1,32}")


def pins_of(run_id: str) -> Path:
    """The folder of a run's pins. UsageError for what can't be a run id: it becomes part of a path."""
    if not RUN_ID.fullmatch(run_id):
        raise UsageError(f"run id {run_id!r}: want up to 32 letters a-z and digits")
    return STATE_DIR / f"bpf-{run_id}"


def mount(run_id: str) -> Path:
    """Mount the run's bpffs, if it isn't yet. MissingFeature if the kernel or the rights don't allow it."""
    folder = pins_of(run_id)
    if os.path.ismount(folder):
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingFeature(f"{folder} can't be made ({error.strerror}); run as root") from None
    done = tools.run("mount", "-t", "bpf", "bpf", str(folder))
    if done.returncode:
        folder.rmdir()
        raise MissingFeature(f"no bpffs at {folder} ({done.stderr.strip()}); run as root, or use --clock virtual")
    return folder


def remove_pins(run_id: str) -> None:
    """Unpin everything of a run; the kernel frees what is neither attached nor open. Missing is fine."""
    folder = pins_of(run_id)
    while os.path.ismount(folder):
        done = tools.run("umount", "--lazy", str(folder))
        if done.returncode:
            raise FabricError(f"the pins of run {run_id} stay: {done.stderr.strip()}")
    if folder.is_dir():
        folder.rmdir()
