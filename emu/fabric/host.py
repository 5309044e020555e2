"""What all fabrics of a machine share: the input backlog, its drops, and the CPU.

A veth hands packets to the receiver's CPU through a backlog of net.core.netdev_max_backlog packets; its drops are outside
every modelled queue. The first run raises the limit, the last one puts the old value back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from emu.fabric import registry

BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
BACKLOG_PACKETS = 1_000_000
RNDRESEEDCRNG = 0x5207
_SAVED = registry.STATE_DIR / "netdev_max_backlog"


def raise_backlog() -> None:
    """Called by every run after it has registered. A container has no such knob; its drops are checked all the same."""
    if not BACKLOG.exists():
        return
    with registry.locked():
        now = BACKLOG.read_text().strip()
        if int(now) < BACKLOG_PACKETS:
            _SAVED.write_text(now)
            BACKLOG.write_text(str(BACKLOG_PACKETS))


def restore_backlog() -> None:
    """Called by every run after it has been forgotten: the last one restores."""
    with registry.locked():
        if _SAVED.exists() and not any(registry.runs().values()):
            BACKLOG.write_text(_SAVED.read_text())
            _SAVED.unlink()


@dataclass(frozen=True)
class HostLoad:
    """CPU seconds of this process (with the packet work the kernel does in its name), when, input backlog drops, and
    seconds of packet work on each CPU."""

    cpu_s: float
    at_s: float
    backlog_drops: int
    packet_work_s: tuple[float, ...] = ()

    def busy_share_since(self, before: HostLoad) -> float:
        """Of one core; near 1 means that this process could not have gone faster."""
        elapsed_s = self.at_s - before.at_s
        return (self.cpu_s - before.cpu_s) / elapsed_s if elapsed_s else 0.0

    def packet_work_since(self, before: HostLoad) -> float:
        """Share of its time that the CPU with the most packet work spent on it."""
        elapsed_s = self.at_s - before.at_s
        spent_s = [now - then for now, then in zip(self.packet_work_s, before.packet_work_s, strict=True)]
        return max(spent_s, default=0.0) / elapsed_s if elapsed_s else 0.0


def load() -> HostLoad:
    """Source: clock_gettime(2) CLOCK_PROCESS_CPUTIME_ID; net/core/net-procfs.c for the drops."""
    return HostLoad(time.process_time(), time.monotonic(), backlog_drops(), packet_work_s())


def packet_work_s() -> tuple[float, ...]:
    """Seconds that each CPU has spent in interrupts, hard and soft, where the kernel forwards; proc_stat(5)."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines() if re.match(r"cpu\d", line)]
    return tuple(tick_s * (int(fields[6]) + int(fields[7])) for fields in lines)


def backlog_drops() -> int:
    """Packets dropped so far, over all CPUs: second column of softnet_stat."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def fresh_randomness() -> None:
    """Make the kernel draw a new key for its random numbers: what follows doesn't depend on how many were used before.

    RED's coin flips come from there. In the lab kernel the new key is the seed's, elsewhere one like any other.
    Source: random(4), RNDRESEEDCRNG (Linux 4.17); a kernel without it draws on.
    """
    with open("/dev/urandom", "rb") as urandom, contextlib.suppress(OSError):
        fcntl.ioctl(urandom, RNDRESEEDCRNG)
