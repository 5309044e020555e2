"""Is there room for a guest of so many bytes, and where does its memory file go? Decided before the boot.

User-mode Linux keeps the guest's memory in an unlinked file that it maps executable, best on tmpfs
(arch/um/os-Linux/mem.c). The file is sparse: only what the guest touches is used. A tmpfs that fills up kills the
kernel with SIGBUS, hence the check.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from emu.errors import FabricError

MIN_MEM_BYTES = 128 << 20                   # with less, Python and this project's imports are read again and again
MIB = 1 << 20


def memory_folder(mem_bytes: int) -> Path:
    """A folder for the guest's memory file: /dev/shm if it is large enough, else the temporary folder.

    FabricError when the guest would be too small, the host has less memory available, or no folder has the room.
    """
    if mem_bytes < MIN_MEM_BYTES:
        raise FabricError(f"lab guest memory {mem_bytes / MIB:.0f} MiB is too little: "
                          f"at least {MIN_MEM_BYTES // MIB} MiB")
    available = available_bytes()
    if mem_bytes > available:
        raise FabricError(f"lab guest needs {mem_bytes / MIB:.0f} MiB of memory, this host has "
                          f"{available / MIB:.0f} MiB available: make the topology smaller or close other programs")
    folders = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    for folder in folders:
        if holds(folder, mem_bytes):
            return folder
    raise FabricError(f"lab guest needs {mem_bytes / MIB:.0f} MiB in {' or '.join(map(str, folders))}, mounted without "
                      "noexec: free some, enlarge /dev/shm, or set TMPDIR to a folder that has it")


def holds(folder: Path, mem_bytes: int) -> bool:
    """The folder can be written, allows executable mappings and has the free space."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    system = os.statvfs(folder)
    return not system.f_flag & os.ST_NOEXEC and system.f_bavail * system.f_frsize >= mem_bytes


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """MemAvailable of proc(5), or what a container's limit (cgroup v2 memory.max) leaves of it."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    host = int(found[1]) * 1024 if found else 0
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return host
    return host if limit == "max" else min(host, int(limit) - int(used))
