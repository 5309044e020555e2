"""Host process between Railbed and one lab kernel: whatever happens to Railbed, kernel and run folder go.

A process of its own, because Railbed may be killed with SIGKILL: the keeper sees its end of the pipe close. Should the
keeper itself be killed, the kernel dies with it (PR_SET_PDEATHSIG) and the guest's processes with the kernel (patch
no-orphans). Started as `python -S -E -m emu.lab.keeper FOLDER LINUX ARGUMENT...`, stdin and stdout being pipes.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from emu.lab.orphans import adopt_orphans, die_with_parent, kill_those_in


def main(folder: str, command: list[str]) -> None:
    """Run the kernel until it ends or the owner does; say that it ended; remove the folder when the owner is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    with open(f"{folder}/kernel.log", "wb") as log:
        kernel = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env={"TMPDIR": folder, "HOME": folder}, preexec_fn=die_with_parent())
    try:
        wait_for_end(kernel.pid)
        kernel.kill()
        kernel.wait()
        kill_those_in(Path(folder))
        reap_orphans()
        os.close(sys.stdout.fileno())       # the owner takes this as: the kernel is gone
        os.read(sys.stdin.fileno(), 1)      # returns when the owner has read the results, or is dead
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_end(kernel: int) -> None:
    """Return when the kernel has ended or the owner has closed its end of stdin."""
    events = select.poll()
    pidfd = os.pidfd_open(kernel)
    events.register(pidfd, select.POLLIN)
    events.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    events.poll()
    os.close(pidfd)


def reap_orphans() -> None:
    """Wait for the guest's processes, which were killed with their kernel and handed to us."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
