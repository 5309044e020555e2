"""From a source tarball to a kernel: unpack, patch, configure, read the configuration back, make.

KCONFIG_ALLCONFIG with allnoconfig turns off everything the fragment does not name, so that it compiles in minutes
(Documentation/kbuild/kconfig.rst in the kernel tree).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from emu.errors import FabricError, MissingFeature
from emu.lab.orphans import die_with_parent
from emu.lab.patches import apply_patches
from emu.lab.source import Source, unpack

TOOLS = {"make": "make", "gcc": "gcc", "ld": "binutils", "flex": "flex", "bison": "bison", "bc": "bc", "tar": "tar",
         "xz": "xz-utils"}                  # command: Debian package
SAID_OTHERWISE = {"CONFIG_BASE_FULL=y": "# CONFIG_BASE_SMALL is not set"}        # since 6.10
EXPECTED_OBJECTS = 1187                     # lines that make prints; only the progress bar depends on it
UNPACKED, MADE = 0.06, 0.99                 # shares of the whole time, measured
Progress = Callable[[float, str], None]


def need_tools() -> None:
    """MissingFeature with one apt command that names every package still missing."""
    packages = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if packages:
        raise MissingFeature("the lab kernel's build needs more tools: "
                             f"run `apt install {' '.join(packages)} libc6-dev`")


def compile_kernel(source: Source, fragment: Path, work: Path, lock_fd: int, progress: Progress) -> Path:
    """Build below `work`; returns a folder that holds `linux` and its `config`, ready to be renamed into place."""
    progress(0.0, "unpacking the source")
    tree = unpack(source, work)
    apply_patches(tree, source.version)
    progress(UNPACKED, "configuring")
    _make(tree, lock_fd, "allnoconfig", KCONFIG_ALLCONFIG=str(fragment.resolve()))
    read_back(fragment.read_text(), (tree / ".config").read_text(), source.version)
    for done, _line in enumerate(_make_lines(tree, lock_fd, "linux")):
        progress(min(UNPACKED + (MADE - UNPACKED) * done / EXPECTED_OBJECTS, MADE), "compiling")
    progress(MADE, "installing")
    return _collect(tree, work / "made")


def read_back(fragment: str, config: str, version: str) -> None:
    """FabricError that names every option of the fragment which the configuration does not hold as asked."""
    granted = set(config.splitlines())
    refused = [line for line in asked(fragment) if not granted & {line, SAID_OTHERWISE.get(line)}]
    if refused:
        raise FabricError(f"Linux {version}: kernel options not granted: {' '.join(refused)}; "
                          "a dependency is missing in emu/lab/lab-kernel.config or the option has a new name")


def asked(fragment: str) -> list[str]:
    """The CONFIG_X=value lines of a fragment."""
    return [line.strip() for line in fragment.splitlines() if line.startswith("CONFIG_")]


def _collect(tree: Path, made: Path) -> Path:
    made.mkdir()
    shutil.copy(tree / ".config", made / "config")
    subprocess.run(["strip", "--strip-debug", "-o", made / "linux", tree / "linux"], check=True)
    return made


def _make(tree: Path, lock_fd: int, target: str, **variables: str) -> None:
    for _line in _make_lines(tree, lock_fd, target, **variables):
        pass


def _make_lines(tree: Path, lock_fd: int, target: str, **variables: str) -> Iterator[str]:
    """Run make and yield its lines; FabricError with the first complaint when it fails, killed when abandoned."""
    jobs = len(os.sched_getaffinity(0))
    command = ["make", f"-j{jobs}", "ARCH=um", target, *(f"{name}={value}" for name, value in variables.items())]
    make = subprocess.Popen(command, cwd=tree, env=_environment(), pass_fds=[lock_fd], text=True, errors="replace",
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True, preexec_fn=die_with_parent(signal.SIGTERM))
    complaints = []
    try:
        for line in make.stdout:
            if re.search(r"error|\*\*\*|undefined reference|No space left", line):
                complaints.append(line.strip())
            yield line
        if make.wait():
            reason = complaints[0] if complaints else f"exit status {make.returncode}"
            raise FabricError(f"building the lab kernel failed in make {target}: {reason}")
    finally:
        _end(make)


def _end(make: subprocess.Popen) -> None:
    """Stop make and its compilers: they are alone in the session that was made for them."""
    if make.poll() is None:
        os.killpg(make.pid, signal.SIGTERM)
    make.stdout.close()
    make.wait()


def _environment() -> dict[str, str]:
    """Little of the user's environment: MAKEFLAGS or CFLAGS would build another kernel under the same key."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": "/", "KBUILD_BUILD_USER": "railbed",
            "KBUILD_BUILD_HOST": "lab", "KBUILD_BUILD_TIMESTAMP": "1970-01-01"}
