"""Find and unpack the distribution's kernel source: Debian 12 ships 6.1, Debian 13 ships 6.12, both as linux-source-*.

The distribution's package and not a download: it is signed, patched for security, and there without internet.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from emu.errors import FabricError, MissingFeature

SOURCE_DIR = Path("/usr/src")
DOC_DIR = Path("/usr/share/doc")
SOURCE_ENV = "RAILBED_LINUX_SOURCE"         # path of a linux-source tarball, when several are installed

# Trees whose code User-mode Linux never compiles; their Kconfig files are needed, so only code is left out.
UNUSED_CODE = ("drivers/gpu", "drivers/media", "drivers/staging", "sound", "tools/testing", "drivers/scsi",
               "arch/arm*", "arch/mips", "arch/powerpc", "arch/s390", "arch/sparc", "arch/riscv", "Documentation")


@dataclass(frozen=True)
class Source:
    """A linux-source tarball and its full version, e.g. `6.1.192-3`."""

    tarball: Path
    version: str


def find_source(folder: Path = SOURCE_DIR, docs: Path = DOC_DIR) -> Source | None:
    """The tarball that RAILBED_LINUX_SOURCE names, else the newest linux-source-*.tar.* in `folder`, else None."""
    chosen = os.environ.get(SOURCE_ENV)
    if chosen:
        if not Path(chosen).is_file():
            raise MissingFeature(f"{SOURCE_ENV}={chosen}: no such file; give the path of a linux-source-*.tar.xz")
        return _source(Path(chosen), docs)
    tarballs = sorted(folder.glob("linux-source-*.tar.*"), key=lambda path: _numbers(path.name))
    return _source(tarballs[-1], docs) if tarballs else None


def need_source() -> Source:
    """find_source(), or MissingFeature with the command that installs one."""
    source = find_source()
    if source is None:
        raise MissingFeature(f"no kernel source in {SOURCE_DIR}: install it with `apt install linux-source`")
    return source


def unpack(source: Source, into: Path) -> Path:
    """Unpack the source below `into` (about 10 s) and return the top of the tree."""
    leave_out = [f"--exclude=*/{folder}/*.[chS]" for folder in UNUSED_CODE]
    done = subprocess.run(["tar", "--extract", "--file", source.tarball, "--directory", into, "--no-same-owner",
                           "--wildcards", *leave_out], capture_output=True, text=True)
    trees = [path for path in into.iterdir() if (path / "Kbuild").is_file()]
    if done.returncode or len(trees) != 1:
        reason = done.stderr.strip().splitlines()[-1:] or ["no kernel tree in it"]
        raise FabricError(f"{source.tarball}: cannot be unpacked: {reason[0]}")
    return trees[0]


def _source(tarball: Path, docs: Path) -> Source:
    package = re.sub(r"\.tar\.\w+$", "", tarball.name)
    return Source(tarball, _package_version(docs / package) or package.removeprefix("linux-source-"))


def _package_version(doc: Path) -> str | None:
    """The version in the first line of the package's changelog: the tarball's name has two of its numbers only."""
    try:
        with gzip.open(doc / "changelog.Debian.gz", "rt") as changelog:
            found = re.search(r"\(([\w.+~-]+)\)", changelog.readline())
    except OSError:
        return None
    return found[1] if found else None


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))
