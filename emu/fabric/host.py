"""What all fabrics of a machine share: the input backlog, its drops, and the CPU.

A veth hands packets to the receiver's CPU through a backlog of net.core.netdev_max_backlog packets; its drops are outside
every modelled queue. The first run raises the limit, the last one puts the old value back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from emu.fabric import registry

BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")
BACKLOG_PACKETS = 1_000_000
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
    """CPU seconds of this process (with the packet work the kernel does in its name), when, and input backlog drops."""

    cpu_s: float
    at_s: float
    backlog_drops: int

    def busy_share_since(self, before: HostLoad) -> float:
        """Of one core; near 1 means that this process could not have gone faster."""
        elapsed_s = self.at_s - before.at_s
        return (self.cpu_s - before.cpu_s) / elapsed_s if elapsed_s else 0.0


def load() -> HostLoad:
    """Source: clock_gettime(2) CLOCK_PROCESS_CPUTIME_ID; net/core/net-procfs.c for the drops."""
    return HostLoad(time.process_time(), time.monotonic(), backlog_drops())


def backlog_drops() -> int:
    """Packets dropped so far, over all CPUs: second column of softnet_stat."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)
