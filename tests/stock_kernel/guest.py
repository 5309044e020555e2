"""Second half of the boot, on the host's files: run the commands, say how they ended, switch off.

Stand-alone: run.py copies it into the run's folder, as a script of its own Python.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import subprocess
import time
import traceback
from pathlib import Path

RUN = Path("/run/stock-kernel")  # the run's folder on the host
RB_POWER_OFF = 0x4321FEDC  # linux/reboot.h
TOO_LATE = 124  # as timeout(1) says it
COMMAND_SHOWN = 100  # characters of each command line in the diagnosis


def prepare(spec: dict) -> None:
    """Where the kernel finds its modules; loopback and host name as on any booted machine."""
    modules = Path("/lib/modules") / os.uname().release
    modules.parent.mkdir(exist_ok=True)
    if not modules.exists():
        modules.symlink_to(spec["modules"])
    os.environ.update(spec["env"])
    os.chdir(spec["cwd"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def run_all(commands: list[list[str]], limit_s: float) -> int:
    """Each command after the other; the first exit code that is not 0."""
    deadline = time.monotonic() + limit_s
    codes = []
    for command in commands:
        say(f"$ {shlex.join(command)}")
        started = time.monotonic()
        codes.append(run_one(command, deadline))
        say(f"exit {codes[-1]} after {time.monotonic() - started:.1f} s")
    return next((code for code in codes if code), 0)


def run_one(command: list[str], deadline: float) -> int:
    """Exit code, 128 + signal as a shell counts; at the deadline what runs is named and TOO_LATE returned."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        code = process.wait(timeout=max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        say(f"stopped at the limit; running: {' | '.join(running()) or 'nothing'}")
        return TOO_LATE
    except OSError as error:
        say(f"cannot start {command[0]!r}: {error.strerror}")
        return 127
    return code if code >= 0 else 128 - code


def running() -> list[str]:
    """State and command line of every process but kernel threads and this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if words and int(folder.name) != os.getpid():
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            found.append(f"{state} {words[:COMMAND_SHOWN]}")
    return found


def say(line: str) -> None:
    print(f"stock kernel: {line}", flush=True)


def main() -> None:
    """The exit code is the last thing written, so that its absence means the boot failed."""
    output = os.open(RUN / "output", os.O_WRONLY | os.O_APPEND)
    for descriptor in (1, 2):  # one file, so that a command's errors stay where they belong in its output
        os.dup2(output, descriptor)
    try:
        spec = json.loads((RUN / "spec.json").read_text())
        prepare(spec)
        (RUN / "exit").write_text(str(run_all(spec["commands"], spec["limit_s"])))
    except Exception:
        traceback.print_exc()
    finally:
        ctypes.CDLL(None).reboot(RB_POWER_OFF)


if __name__ == "__main__":
    main()
