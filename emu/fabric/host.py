"""What all fabrics of a machine share: the input backlog, its drops, and the CPU.

A veth hands packets to the receiver's CPU through a backlog of net.core.netdev_max_backlog packets; its drops are outside
every modelled queue. The first run raises the limit, the last one puts the old value back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from emu.fabric import registry

BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
BACKLOG_PACKETS = 1_000_000
_SAVED = registry.STATE_DIR / "netdev_max_backlog"


def raise_backlog() -> None:
    """Called by every run after it has registered."""
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
    """Counters since boot: CPU ticks busy and in all over the machine's CPUs; packets the input backlog dropped."""

    busy_ticks: int
    all_ticks: int
    backlog_drops: int

    def busy_share_since(self, before: HostLoad) -> float:
        ticks = self.all_ticks - before.all_ticks
        return (self.busy_ticks - before.busy_ticks) / ticks if ticks else 0.0


def load() -> HostLoad:
    """Source: proc(5) /proc/stat, net/core/net-procfs.c (second column of softnet_stat)."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    busy = user + nice + system + irq + softirq + steal
    return HostLoad(busy, busy + idle + iowait, backlog_drops())


def backlog_drops() -> int:
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def cpus() -> int:
    return os.cpu_count() or 1
