"""Run one command in the lab kernel: an ordinary process of an ordinary user, with the host's files as its root.

What the command sees depends on the command, its environment and the seed: time starts at a fixed instant and moves
only when nothing can run, random numbers come from the seed, the environment is an allow-list, the host's name hidden.
Source: Documentation/virt/uml in the kernel tree; `time-travel=inf-cpu` in arch/um/kernel/time.c.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from emu.errors import FabricError, MissingFeature, UsageError, unknown
from emu.lab import kernel
from emu.lab.mconsole import running_tasks
from emu.lab.memory import memory_folder
from emu.lab.orphans import kill_those_in
from emu.lab.tail import Tail

PACKAGE_ROOT = Path(__file__).resolve().parents[2]
INIT = Path(__file__).with_name("guest_init.py")
HERE = "/proc/self/cwd"                     # the run's folder, by a name that is the same in every run
START_NS = 1_700_000_000 * 10**9            # the guest's clock at boot; any fixed instant does
CLOCKS = {"virtual": ("time-travel=inf-cpu", f"time-travel-start={START_NS}"), "real": ()}
ROOT = ("root=hostfs", "rootfstype=hostfs", "rootflags=/", "rw", "devtmpfs.mount=0")
ALLOWED_ENV = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "VIRTUAL_ENV",
               "PYTHONPATH")
IN_LAB_ENV = "RAILBED_LAB"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"     # ip and tc are in sbin
HIDDEN = ("/tmp", "/run", "/dev/shm")       # memory folders in the guest, see guest_init.py
COMMAND_SHOWN = 100                         # characters of the command in an error message
LOOK_S = 0.02                               # how often new output and the kernel's end are looked for


def run(argv: Sequence[str], *, seed: int, mem_bytes: int, limit_s: float | None = None,
        env: Mapping[str, str] | None = None, clock: str = "virtual", cwd: Path | None = None,
        host_folders: Sequence[Path] = (), stdout: BinaryIO | None = None, stderr: BinaryIO | None = None) -> int:
    """Boot, run `argv` as the guest's root in `cwd`, stream its output, return its exit code (128 + signal if killed).

    `env` adds to the allowed part of this process's environment. Host files can be written as far as this user may,
    except below /tmp, /run and /dev/shm, which are the guest's own; `cwd`, this Python and `host_folders` are shown
    there too. `limit_s` is wall time. Errors: MissingFeature (machine, kernel not built), FabricError (memory, limit,
    panic).
    """
    if clock not in CLOCKS:
        raise unknown("clock", clock, CLOCKS)
    if in_lab():
        raise MissingFeature("the lab kernel cannot boot another one inside itself: use `--clock real` there")
    linux = kernel.need_path()
    cwd = (cwd or Path.cwd()).resolve()
    for path in (cwd, *host_folders):
        if not path.is_dir():
            raise UsageError(f"{path}: no such folder; make it before the lab kernel boots")
    shown = hidden_folders([cwd, PACKAGE_ROOT, Path(sys.prefix), Path(sys.base_prefix), *host_folders])
    spec = {"argv": list(argv), "cwd": str(cwd), "env": guest_env(os.environ, env or {}, seed), "hostname": "lab",
            "host_folders": shown}
    with _Keeper(memory_folder(mem_bytes), spec, [str(linux), *kernel_arguments(seed, mem_bytes, clock)]) as keeper:
        outputs = [Tail(keeper.folder / "stdout", stdout or sys.stdout.buffer),
                   Tail(keeper.folder / "stderr", stderr or sys.stderr.buffer)]
        if not keeper.follow(outputs, limit_s):
            raise FabricError(_limit_message(keeper.folder, argv, limit_s, outputs))
        return _exit_code(keeper.folder, mem_bytes)


def in_lab() -> bool:
    """Is this process already in the lab kernel? Then the command is to be done, not handed on."""
    return IN_LAB_ENV in os.environ


def kernel_arguments(seed: int, mem_bytes: int, clock: str) -> list[str]:
    """The kernel's command line. random_init_early() stirs it into the random numbers, so no path may be on it.

    `random.trust_cpu`: without it the kernel gathers entropy from timers, 0.8 s of CPU at each boot.
    """
    return [f"mem={mem_bytes // 1024}K", *ROOT, *CLOCKS[clock], f"railbed.seed={seed % 2**64}", "random.trust_cpu=on",
            "dummy.numdummies=0", "ifb.numifbs=0", "con=null", "con0=null,fd:2", f"uml_dir={HERE}", "umid=uml",
            f"init={HERE}/init"]


def guest_env(host: Mapping[str, str], extra: Mapping[str, str], seed: int) -> dict[str, str]:
    """The guest's environment: allow-list, fixed hash seed, where it runs and with which seed, then `extra`."""
    allowed = {name: host[name] for name in ALLOWED_ENV if name in host}
    allowed["PATH"] = f"{host['PATH']}:{SYSTEM_PATH}" if host.get("PATH") else SYSTEM_PATH
    return {**allowed, "PYTHONHASHSEED": "0", IN_LAB_ENV: "1", "RAILBED_SEED": str(seed), **extra}


def hidden_folders(paths: Sequence[Path]) -> list[str]:
    """Those of `paths` that the guest's memory folders would hide, outermost only."""
    hidden = sorted({path.resolve() for path in paths if any(path.resolve().is_relative_to(top) for top in HIDDEN)})
    return [str(path) for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]


class _Keeper:
    """The process that owns the kernel and the run's folder (keeper.py); both are gone when the `with` block ends."""

    def __init__(self, parent: Path, spec: dict[str, object], command: list[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="railbed-lab-", dir=parent))
        try:
            _fill(self.folder, spec)
            keeper = [sys.executable, "-S", "-E", "-m", "emu.lab.keeper", self.folder]
            self._process = subprocess.Popen([*keeper, *command], cwd=PACKAGE_ROOT, stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, start_new_session=True)
        except BaseException:
            shutil.rmtree(self.folder)
            raise

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        if self._process.returncode:        # somebody killed the keeper: do its work
            kill_those_in(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)

    def follow(self, outputs: Sequence[Tail], limit_s: float | None) -> bool:
        """Copy output until the kernel has ended (True) or the limit has passed (False)."""
        deadline = time.monotonic() + limit_s if limit_s is not None else float("inf")
        ended = False
        while not ended and time.monotonic() < deadline:
            ended = bool(select.select([self._process.stdout], [], [], LOOK_S)[0])
            for output in outputs:
                output.copy_new()
        return ended


def _fill(folder: Path, spec: dict[str, object]) -> None:
    """What guest_init.py expects to find, and itself as an executable script of this Python."""
    for name in ("stdout", "stderr", "exit"):
        (folder / name).touch()
    (folder / "spec.json").write_text(json.dumps(spec))
    init = folder / "init"
    init.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{INIT.read_text()}")
    init.chmod(0o700)


def _exit_code(folder: Path, mem_bytes: int) -> int:
    code, log = _text(folder / "exit"), _text(folder / "kernel.log")
    if code:
        return int(code)
    if "Out of memory" in log or "out of memory" in log:
        raise FabricError(f"lab guest ran out of its {mem_bytes >> 20} MiB of memory: give it more, "
                          "or make the topology smaller")
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["it printed nothing"]
    reason = next((line for line in lines if "panic" in line), lines[-1])
    raise FabricError(f"the lab kernel ended before its command did: {reason}")


def _text(path: Path) -> str:
    """The file's text, "" when a keeper that failed has removed it."""
    return path.read_text(errors="replace") if path.exists() else ""


def _limit_message(folder: Path, argv: Sequence[str], limit_s: float, outputs: Sequence[Tail]) -> str:
    tasks = running_tasks(folder / "uml")
    said = [line for line in (output.last_line() for output in outputs) if line]
    return (f"lab guest stopped after {limit_s:g} s of wall time: {_short(argv)}; {tasks}; "
            f"last output: {' | '.join(said) or 'none'}")


def _short(argv: Sequence[str]) -> str:
    """The command on one line of bounded length."""
    return textwrap.shorten(shlex.join(argv), width=COMMAND_SHOWN, placeholder=" ...")
