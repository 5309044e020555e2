"""Which runs are alive, so that `railbed clean` can tell what is ours and whose owner is gone.

One file per run, /run/railbed/<run id>.json, written before the run's first object exists: the owner's pid and start time
(a pid alone may have been given to somebody else). Everything else of a run is found by its id.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATE_DIR = Path("/run/railbed")
RUN_ENV = "RAILBED_RUN"  # environment variable that every process of a run carries


def new_run_id() -> str:
    """Six hexadecimal digits that no run on this machine has: seeded random numbers repeat themselves."""
    taken = runs()
    while (run_id := secrets.token_hex(3)) in taken:
        pass
    return run_id


def register(run_id: str) -> None:
    """Book run `run_id` as owned by this process."""
    owner = {"pid": os.getpid(), "start": start_time(os.getpid())}
    with locked():  # a file that is half written would look like a dead run's
        _file(run_id).write_text(json.dumps(owner))


def forget(run_id: str) -> None:
    _file(run_id).unlink(missing_ok=True)


def runs() -> dict[str, bool]:
    """Run id -> whether its owner is alive."""
    return {path.stem: _owner_alive(path) for path in sorted(STATE_DIR.glob("*.json"))}


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of `pid`; None if there is no such process. Source: proc(5), field 22."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


@contextmanager
def locked() -> Iterator[None]:
    """One process at a time decides about what runs share."""
    STATE_DIR.mkdir(parents=True, exist_ok=True)
    with open(STATE_DIR / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _file(run_id: str) -> Path:
    return STATE_DIR / f"{run_id}.json"


def _owner_alive(path: Path) -> bool:
    try:
        owner = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return owner["start"] is not None and start_time(owner["pid"]) == owner["start"]
