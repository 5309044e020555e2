"""The external programs that build and load BPF objects: clang and bpftool, both set up by `./lab setup`."""

from __future__ import annotations

import shutil
import subprocess

from emu.errors import MissingFeature

ADMIN_PATH = "/usr/sbin:/sbin"  # Debian keeps bpftool there and leaves it out of a user's PATH
TIMEOUT_S = 120


def find(name: str) -> str:
    """Path of an installed program; MissingFeature names it and the command that installs it."""
    path = shutil.which(name) or shutil.which(name, path=ADMIN_PATH)
    if path is None:
        raise MissingFeature(f"{name} is not installed; BPF programs need it; install it: ./lab setup")
    return path


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end and return what it said, whether it succeeded or not."""
    return subprocess.run([find(name), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
