"""Network namespaces: named, entered, removed. Every system call is checked; names carry the run id.

A namespace is named as `ip netns` does it (a bind mount in /run/netns), so that `ip netns exec` and tcpdump work on it.
Source: namespaces(7), iproute2's ip-netns(8).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emu.errors import FabricError, MissingFeature

NETNS_DIR = Path("/run/netns")
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SHARED, MNT_DETACH = 4096, 16384, 1 << 20, 2

_libc = ctypes.CDLL(None, use_errno=True)


def name_of(run_id: str, node: str) -> str:
    """rb<run id>-leaf0: what `ip netns` shows."""
    return f"rb{run_id}-{node}"


def of_run(run_id: str) -> list[str]:
    """Names of the namespaces that run `run_id` made."""
    if not NETNS_DIR.is_dir():
        return []
    return sorted(entry.name for entry in NETNS_DIR.iterdir() if entry.name.startswith(f"rb{run_id}-"))


def create(name: str) -> None:
    """A new namespace called `name`; FabricError if there is one already or the kernel refuses."""
    _share_netns_dir()
    path = NETNS_DIR / name
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
        _check(_libc.unshare(CLONE_NEWNET), f"unshare for {name}")
        _check(_libc.mount(b"/proc/thread-self/ns/net", bytes(path), b"none", MS_BIND, None), f"name {name}")
    except FileExistsError:
        raise FabricError(f"namespace {name} exists already; `railbed clean` removes what dead runs left") from None
    finally:
        _return_to(home)


def remove(name: str) -> None:
    """Unname `name`; the kernel frees it, and its links, when the last process in it has gone. Missing is fine."""
    path = NETNS_DIR / name
    _libc.umount2(bytes(path), MNT_DETACH)
    path.unlink(missing_ok=True)


@contextmanager
def inside(name: str) -> Iterator[None]:
    """The calling thread is in namespace `name` within the block."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(NETNS_DIR / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(target, CLONE_NEWNET), f"enter {name}")
        finally:
            os.close(target)
        yield
    finally:
        _return_to(home)


def _return_to(home: int) -> None:
    """Also where the way out has not begun: Ctrl-C may come between any two steps."""
    try:
        _check(_libc.setns(home, CLONE_NEWNET), "return to the caller's namespace")
    finally:
        os.close(home)


def _share_netns_dir() -> None:
    NETNS_DIR.mkdir(parents=True, exist_ok=True)
    if _libc.mount(b"", bytes(NETNS_DIR), b"none", MS_SHARED | MS_REC, None) == 0:
        return
    _check(_libc.mount(bytes(NETNS_DIR), bytes(NETNS_DIR), b"none", MS_BIND | MS_REC, None), f"bind {NETNS_DIR}")
    _check(_libc.mount(b"", bytes(NETNS_DIR), b"none", MS_SHARED | MS_REC, None), f"share {NETNS_DIR}")


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        if code == errno.EPERM:
            raise MissingFeature(
                f"{what}: this process may not make namespaces (no CAP_SYS_ADMIN); run it with sudo, a container as "
                "privileged, or add --clock virtual"
            )
        raise FabricError(f"{what}: {os.strerror(code)}")
