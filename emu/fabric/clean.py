"""Remove what a run left: processes, namespaces (and with them links and qdiscs), BPF pins, its entry in the registry.

By run id only. Processes are ours if their environment says so (RAILBED_RUN=<id>); nothing is killed by name.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emu.bpf import loader
from emu.errors import FabricError, UsageError
from emu.fabric import host, netns, registry

KILL_DEADLINE_S = 5.0


@dataclass(frozen=True)
class Cleaned:
    """What was removed of one run."""

    run_id: str
    processes: int
    namespaces: int


def clean(run_ids: Iterable[str] = ()) -> list[Cleaned]:
    """Remove the named runs, or every run whose owner is dead; UsageError for a run that nobody made or that is alive."""
    with registry.locked():
        known = registry.runs()
    wanted = list(run_ids) or [run_id for run_id, alive in known.items() if not alive]
    for run_id in wanted:
        if run_id not in known:
            raise UsageError(f"run {run_id!r} is not known; known: {', '.join(known) or 'none'}")
        if known[run_id]:
            raise UsageError(f"run {run_id!r} is alive; end it first (Ctrl-C in its terminal)")
    done = [remove_run(run_id) for run_id in wanted]
    host.restore_backlog()
    return done


def remove_run(run_id: str) -> Cleaned:
    """Remove everything that carries `run_id` and forget the run."""
    killed = kill_processes(run_id)
    names = netns.of_run(run_id)
    for name in names:
        netns.remove(name)
    loader.remove_pins(run_id)
    registry.forget(run_id)
    return Cleaned(run_id, killed, len(names))


def kill_processes(run_id: str) -> int:
    """Kill, and wait for, every process that carries the run id; FabricError if one outlives the deadline."""
    killed = 0
    while found := processes_of(run_id):  # again: one of them may have forked meanwhile
        killed += _kill(run_id, found)
    return killed


def _kill(run_id: str, pids: Iterable[int]) -> int:
    handles = [handle for handle in map(_open, pids) if handle is not None]
    try:
        for handle in handles:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            if not select.select([handle], [], [], KILL_DEADLINE_S)[0]:
                raise FabricError(f"run {run_id}: a process is still there {KILL_DEADLINE_S:g} s after SIGKILL")
    finally:
        for handle in handles:
            os.close(handle)
    return len(handles)


def processes_of(run_id: str) -> list[int]:
    """Pids whose environment has RAILBED_RUN=<run id>, this process excepted."""
    token = f"{registry.RUN_ENV}={run_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # gone meanwhile, or not ours to read
        if token in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
