"""Run a command in Debian's own kernel: the path of a Vagrant user, with sch_red as a module and the real clock.

    python tests/stock_kernel/run.py [--limit SECONDS] [COMMAND [ARGUMENT]...]

Downloads the kernel package with apt, boots it under qemu with this machine's files (what the guest writes is gone with it)
and runs COMMAND there as root in the present folder; without one: the probe, an incast and the ECN truth test. The exit code
is the command's, 124 at the limit. Any user may run it; without KVM qemu emulates the CPU, some 20 times slower.
Source: Documentation/filesystems/9p.rst, qemu's -virtfs.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import initramfs  # noqa: E402
import package  # noqa: E402

from emu.errors import FabricError, RailbedError  # noqa: E402
from emu.lab.guest import ALLOWED_ENV, SYSTEM_PATH  # noqa: E402
from emu.lab.tail import Tail  # noqa: E402

GUEST = Path(__file__).with_name("guest.py")
LIMIT_S = 1800
BOOT_S = 120  # on top of the limit, which the guest itself keeps once it is up
CPUS, MEMORY_MB = 2, 4096
LINES_SHOWN = 5
LOOK_S = 0.1  # how often new output is looked for
ACCELERATORS = "tcg"
# panic: reboot at once, which -no-reboot turns into an exit; tsc: without it the clock is the emulated HPET, 3 us for a look
BOOT = "console=ttyS0 panic=-1 quiet random.trust_cpu=on tsc=reliable"
PYTHON = [sys.executable, "-m"]
# A frame lasts 1.7 ms at this dilation, and the emulated machine's timers come up to 5 ms late: at 5000 the shapers lose 5 %.
INCAST = ("dilation=20000", "senders=4", "leaf_down=5", "leaf_up=0", "gpus_per_server=1", "size_bytes=8MiB", "load=0.9,1.5")
DEFAULT = [
    [*PYTHON, "emu.cli", "probe"],
    [*PYTHON, "emu.cli", "run", "incast_ecn", "--clock=real", *(f"--set={setting}" for setting in INCAST)],
    [*PYTHON, "pytest", "-p", "no:cacheprovider", "--require-all", "tests/integration/test_ecn_truth.py"],
]


def main(arguments: list[str]) -> int:
    """Exit code of the command, or of what kept it from running."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help=f"wall time ({LIMIT_S})")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    asked = parser.parse_args(arguments)
    try:
        package.need_tools()
        return boot(package.unpacked(), [asked.command] if asked.command else DEFAULT, asked.limit)
    except RailbedError as error:
        print(f"stock kernel: {error}", file=sys.stderr)
        return error.exit_code


def boot(kernel: package.Unpacked, commands: list[list[str]], limit_s: float) -> int:
    """Boot, follow the output, return the exit code; FabricError with the last lines if there is none."""
    folder = Path(tempfile.mkdtemp(prefix="railbed-stock-"))
    try:
        fill(folder, kernel, commands, limit_s)
        output = Tail(folder / "output", sys.stdout.buffer)
        with machine(folder, kernel) as keeper:
            ended = follow(keeper, output, limit_s + BOOT_S)
            return exit_code(folder, ended, limit_s + BOOT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the keeper does it too, should this process be killed


def fill(folder: Path, kernel: package.Unpacked, commands: list[list[str]], limit_s: float) -> None:
    """What init.sh and guest.py expect to find on the shared folder."""
    env = {name: os.environ[name] for name in ALLOWED_ENV if name in os.environ}
    env["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    spec = {"commands": commands, "cwd": str(Path.cwd()), "env": env, "limit_s": limit_s, "modules": str(kernel.modules)}
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "initrd").write_bytes(initramfs.image(kernel))
    (folder / "output").touch()
    guest = folder / "guest"
    guest.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{GUEST.read_text()}")
    guest.chmod(0o755)


def qemu(folder: Path, kernel: package.Unpacked) -> list[str]:
    """The command line: two 9p shares, the kernel's messages in a file, no network, no display."""
    return [
        package.tool("qemu-system-x86_64"), "-machine", f"q35,accel={ACCELERATORS}", "-cpu", "max",
        "-smp", str(CPUS), "-m", str(MEMORY_MB), "-nodefaults", "-display", "none", "-no-reboot",
        "-serial", f"file:{folder}/kernel.log",
        "-kernel", str(kernel.image), "-initrd", f"{folder}/initrd", "-append", BOOT,
        "-virtfs", "local,path=/,mount_tag=host,readonly=on,security_model=none,multidevs=remap",
        "-virtfs", f"local,path={folder},mount_tag=run,security_model=none",
    ]  # fmt: skip


@contextmanager
def machine(folder: Path, kernel: package.Unpacked) -> Iterator[subprocess.Popen]:
    """qemu under emu.lab.keeper, which ends it and removes the folder whatever happens to this process."""
    keeper = [*PYTHON, "emu.lab.keeper", str(folder), *qemu(folder, kernel)]
    process = subprocess.Popen(keeper, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def follow(keeper: subprocess.Popen, output: Tail, limit_s: float) -> bool:
    """Copy output until qemu has ended (True) or the limit has passed (False)."""
    deadline = time.monotonic() + limit_s
    ended = False
    while not ended and time.monotonic() < deadline:
        ended = bool(select.select([keeper.stdout], [], [], LOOK_S)[0])
        output.copy_new()
    return ended


def exit_code(folder: Path, ended: bool, limit_s: float) -> int:
    """What the guest wrote at its end; FabricError with the end of the kernel's messages if it wrote none."""
    code = folder / "exit"
    if ended and code.exists() and code.read_text():
        return int(code.read_text())
    log = folder / "kernel.log"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    what = "qemu ended before the command did" if ended else f"no end after {limit_s:g} s, qemu stopped"
    raise FabricError(f"{what}; its last messages: {' | '.join(lines[-LINES_SHOWN:]) or 'none'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
