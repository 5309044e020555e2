"""Waiting for a condition with a deadline; on failure the last thing seen is in the message."""

from __future__ import annotations

import time
from collections.abc import Callable

from emu.errors import FabricError

POLL_S, POLL_MAX_S = 0.001, 0.25  # from one to the other by doubling: a second of the virtual clock costs only polls


def wait_until_empty(missing: Callable[[], list[str]], timeout_s: float, what: str) -> None:
    """Poll until `missing()` is empty; FabricError with the first that still are after `timeout_s` of kernel time."""
    deadline, pause_s = time.monotonic() + timeout_s, POLL_S
    while still := missing():
        if time.monotonic() > deadline:
            raise FabricError(f"{what}: after {timeout_s:g} s still not: {', '.join(still[:3])} ({len(still)} in all)")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_MAX_S)
