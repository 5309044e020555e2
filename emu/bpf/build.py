"""Compile emu/bpf/*.bpf.c into the user's cache, once for each state of the sources.

A folder of the cache is named after the hash of all sources and of the command, and appears whole or not at all, so
that two builds at once, or one that is killed, leave nothing half-made. The objects don't depend on the kernel they
were built on (no vmlinux.h), so the lab kernel and the host share them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from pathlib import Path

from emu.bpf import tools
from emu.errors import FabricError, unknown

SOURCES = Path(__file__).parent
SUFFIX = ".bpf.c"
# -mcpu=v3: atomic fetch-and-add, understood since Linux 5.12. -g: BTF, from which Python reads the maps' layout
FLAGS = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror")
# where Debian keeps <asm/types.h>, which clang leaves out for the bpf target; elsewhere it is found without
MULTIARCH = f"/usr/include/{platform.machine()}-linux-gnu"


def names() -> list[str]:
    """The objects there are to build: marker for marker.bpf.c."""
    return sorted(path.name.removesuffix(SUFFIX) for path in SOURCES.glob(f"*{SUFFIX}"))


def object_path(name: str) -> Path:
    """Path of the compiled object, built if need be. UsageError (no such program), MissingFeature (no clang)."""
    if name not in names():
        raise unknown("BPF program", name, names())
    return build() / f"{name}.o"


def build() -> Path:
    """The cache folder with every object, built if it is not there; FabricError carries the compiler's first error."""
    folder = cache_dir() / fingerprint()
    if folder.is_dir():
        return folder
    cache_dir().mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=cache_dir()))
    try:
        for name in names():
            compile_program(SOURCES / f"{name}{SUFFIX}", unfinished / f"{name}.o")
        publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/railbed/bpf, by default below ~/.cache (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "railbed" / "bpf"


def fingerprint() -> str:
    """16 hex digits over all sources and the flags."""
    digest = hashlib.sha256("\0".join((*FLAGS, MULTIARCH)).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def compile_program(source: Path, target: Path) -> None:
    """FabricError with the first error if clang refuses."""
    done = tools.run("clang", *FLAGS, "-idirafter", MULTIARCH, "-c", str(source), "-o", str(target))
    if done.returncode:
        errors = (line.strip() for line in done.stderr.splitlines() if "error:" in line)
        raise FabricError(f"{source.name} does not compile: {next(errors, f'clang ended with {done.returncode}')}")


def publish(unfinished: Path, folder: Path) -> None:
    """Give the finished folder its name; if another build was first, its result is the same."""
    unfinished.chmod(0o755)
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


if __name__ == "__main__":
    build()
