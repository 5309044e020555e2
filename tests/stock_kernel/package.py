"""Debian's own kernel package, unpacked in the user's cache: nothing is installed, so the host's /boot is left alone.

`linux-image-amd64` is what a Debian machine or Vagrant box runs: sch_red, sch_tbf and the rest are modules, and nothing is
configured for us. Busybox comes along, since the first program of a boot can't use libraries.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emu.errors import FabricError, MissingFeature
from emu.lab.guest import SYSTEM_PATH
from emu.lab.kernel import cache_dir

KERNEL = "linux-image-amd64"  # names the current kernel's package in its Depends
BUSYBOX = "busybox-static"
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "depmod": "kmod", "dpkg-deb": "dpkg", "apt-get": "apt", "apt-cache": "apt"}


@dataclass(frozen=True)
class Unpacked:
    """Where the unpacked packages lie."""

    top: Path

    @property
    def image(self) -> Path:
        return next((self.top / "boot").glob("vmlinuz-*"))

    @property
    def release(self) -> str:
        """What uname -r says in it."""
        return self.image.name.removeprefix("vmlinuz-")

    @property
    def modules(self) -> Path:
        return self.top / "lib/modules" / self.release

    @property
    def busybox(self) -> Path:
        return next(path for path in (self.top / "bin/busybox", self.top / "usr/bin/busybox") if path.exists())


def tool(name: str) -> str:
    """The program's path; MissingFeature with the command that installs it."""
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise MissingFeature(f"{name} is not installed: apt-get install --no-install-recommends {TOOLS[name]}")
    return found


def need_tools() -> None:
    """All of TOOLS, before anything is downloaded."""
    for name in TOOLS:
        tool(name)


def unpacked() -> Unpacked:
    """The current kernel's package; downloaded and unpacked (70 MB, about 15 s) unless it is in the cache."""
    name, version = current_kernel()
    final = cache_dir().with_name("stock-kernel") / f"{name}_{version}"
    if not final.is_dir():
        final.parent.mkdir(parents=True, exist_ok=True)
        with half_made(final.parent) as work:
            fetch([f"{name}={version}", BUSYBOX], work)
            run([tool("depmod"), "--basedir", work, name.removeprefix("linux-image-")])
            work.rename(final)  # atomic: the folder is there complete or not at all
    return Unpacked(final)


def current_kernel() -> tuple[str, str]:
    """Package and version that linux-image-amd64 stands for, e.g. linux-image-6.1.0-57-amd64, 6.1.192-3."""
    shown = run([tool("apt-cache"), "show", "--no-all-versions", KERNEL])
    found = re.search(r"^Depends:.*?(linux-image-[\w.+-]+) \(= ([\w.+~-]+)\)", shown, re.MULTILINE)
    if found is None:
        raise MissingFeature(f"apt knows no kernel by the name {KERNEL}: this needs Debian on amd64, after apt-get update")
    return found[1], found[2]


def fetch(packages: list[str], into: Path) -> None:
    """Download and unpack; only what a boot needs of it stays."""
    debs = into / "debs"
    debs.mkdir()
    run([tool("apt-get"), "download", *packages], cwd=debs)
    for deb in debs.iterdir():
        run([tool("dpkg-deb"), "--extract", deb, into])
    for unused in (debs, into / "usr/share", *(into / "boot").glob("System.map-*")):
        shutil.rmtree(unused) if unused.is_dir() else unused.unlink(missing_ok=True)


@contextlib.contextmanager
def half_made(parent: Path) -> Iterator[Path]:
    """A folder that is gone at the end unless it was renamed; those of killed runs are removed first."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=parent, ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "tree"
        work.mkdir(mode=0o755)
        yield work


def run(command: list, cwd: Path | None = None) -> str:
    """Standard output; FabricError with the last line of standard error."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise FabricError(f"{Path(command[0]).name} {command[1]}: {reason[0]}")
    return done.stdout
