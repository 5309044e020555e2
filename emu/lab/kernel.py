"""The lab kernel as the rest of Railbed sees it: where it is, what it is, and how to get it.

Kept in the user's cache under a key of source version, fragment and patches, so that one build serves every later
run and no run can use a kernel that was configured otherwise. `railbed kernel build|path|info` prints what is returned.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emu.errors import MissingFeature
from emu.lab import build as building
from emu.lab.patches import PATCHES, Patch
from emu.lab.source import Source, find_source, need_source

FRAGMENT = Path(__file__).with_name("lab-kernel.config")
BUILD_MINUTES = 4                           # 3 min 36 s measured on 2 busy cores; the command line says it beforehand


@dataclass(frozen=True, kw_only=True)
class KernelInfo:
    """What `railbed kernel info` prints; `path` is None until the kernel is built."""

    key: str                                # <source version>-<hash of fragment and patches>
    path: Path | None
    size_bytes: int
    source: Path | None                     # tarball it is or would be built from
    cache: Path
    patches: tuple[str, ...]


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/railbed/kernel, by default below ~/.cache (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "railbed" / "kernel"


def recipe_hash(fragment: str, patches: tuple[Patch, ...] = PATCHES) -> str:
    """12 hex digits that change when the fragment or any patch does."""
    digest = hashlib.sha256(fragment.encode())
    for patch in patches:
        digest.update(f"\0{patch.file}\0{patch.old}\0{patch.new}".encode())
    return digest.hexdigest()[:12]


def cache_key(version: str, fragment: str, patches: tuple[Patch, ...] = PATCHES) -> str:
    """Name of the kernel's folder in the cache."""
    return f"{version}-{recipe_hash(fragment, patches)}"


def path() -> Path | None:
    """The built kernel for today's source, fragment and patches, or None.

    Without any source on this machine (a cache that was carried over) a kernel of the same recipe is good enough.
    """
    source = find_source()
    pattern = cache_key(source.version if source else "*", FRAGMENT.read_text())
    built = sorted(cache_dir().glob(f"{pattern}/linux"))
    return built[-1] if built else None


def need_path() -> Path:
    """path(), or MissingFeature with the command that builds it."""
    refuse_other_machines()
    found = path()
    if found is None:
        raise MissingFeature(f"no lab kernel yet (about {BUILD_MINUTES} minutes, once): run `railbed kernel build`")
    return found


def info() -> KernelInfo:
    """What is or would be built; never builds."""
    source, found = find_source(), path()
    key = found.parent.name if found else cache_key(source.version if source else "unknown", FRAGMENT.read_text())
    return KernelInfo(key=key, path=found, size_bytes=found.stat().st_size if found else 0,
                      source=source.tarball if source else None, cache=cache_dir(),
                      patches=tuple(patch.name for patch in PATCHES))


def build(progress: Callable[[float, str], None] = lambda fraction, step: None) -> Path:
    """The kernel, built first if it is not there yet.

    `progress(fraction, step)` is called with 0.0-1.0 and a few words. Interrupted or failed, it leaves nothing in the
    cache; two builds at once make one kernel. Errors: MissingFeature (machine, tools, source, patch), FabricError.
    """
    refuse_other_machines()
    found = path()
    if found is not None:
        return found
    source = need_source()
    building.need_tools()
    final = cache_dir() / cache_key(source.version, FRAGMENT.read_text())
    with only_build() as lock_fd:
        if not final.is_dir():              # else the build that held the lock made it
            _build_into(final, source, lock_fd, progress)
    return final / "linux"


def refuse_other_machines() -> None:
    """User-mode Linux runs on x86-64 only."""
    if platform.machine() != "x86_64":
        raise MissingFeature(f"the virtual clock needs an x86-64 machine, this is {platform.machine()}: "
                             "use `--clock real`")


@contextlib.contextmanager
def only_build() -> Iterator[int]:
    """Hold the cache's lock; the yielded descriptor goes to make too, so that it is held until make's last child ends.

    Whoever holds it knows that every half-made folder is a dead build's, and removes it.
    """
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for dead in cache_dir().glob(".build-*"):
            shutil.rmtree(dead, ignore_errors=True)
        yield lock.fileno()


def _build_into(final: Path, source: Source, lock_fd: int, progress: Callable[[float, str], None]) -> None:
    work = cache_dir() / f".build-{os.getpid()}"
    try:
        work.mkdir()
        made = building.compile_kernel(source, FRAGMENT, work, lock_fd, progress)
        made.rename(final)                  # atomic: the folder is there complete or not at all
    finally:
        shutil.rmtree(work, ignore_errors=True)
