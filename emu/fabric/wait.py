"""Waiting for a condition with a deadline; on failure the last thing seen is in the message."""

from __future__ import annotations

import time
from collections.abc import Callable

from emu.errors import FabricError

FIRST_POLL_S, LONGEST_POLL_S = 0.001, 0.25


def wait_until_empty(missing: Callable[[], list[str]], timeout_s: float, what: str) -> None:
    """Poll, less and less often, until `missing()` is empty; FabricError with the first after `timeout_s` of kernel time."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_POLL_S
    while still := missing():
        if time.monotonic() > deadline:
            raise FabricError(f"{what}: after {timeout_s:g} s still not: {', '.join(still[:3])} ({len(still)} in all)")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_POLL_S)
