"""No process outlives its run: children that die with their parent, orphans that come to us, and a sweep of the rest.

Source: prctl(2), PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER; Python's standard library has neither.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36        # linux/prctl.h
_libc = ctypes.CDLL(None)


def die_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None]:
    """A preexec_fn for subprocess: the kernel sends `signum` to the child when the thread that started it ends."""
    parent = os.getpid()

    def in_child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signum)
        if os.getppid() != parent:          # it died before the request was made
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that it can be waited for."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_those_in(folder: Path) -> None:
    """Kill every process that works in the run's folder, which nobody else does: its name is random and it is private.

    Needed for guest processes that were cloned but not yet traced when their kernel was killed, above all in its first
    50 ms: they stay stopped for ever. Held by pidfd while looked at, so that a number used again is never hit.
    """
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError), _held(pid) as held:
            if os.readlink(f"/proc/{pid}/cwd") == str(folder):
                signal.pidfd_send_signal(held, signal.SIGKILL)


@contextlib.contextmanager
def _held(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
