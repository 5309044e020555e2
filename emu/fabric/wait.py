"""Waiting for a condition with a deadline; on failure the last thing seen is in the message."""

from __future__ import annotations

import time
from collections.abc import Callable

from emu.errors import FabricError

POLL_S = 0.001


def wait_until_empty(missing: Callable[[], list[str]], timeout_s: float, what: str) -> None:
    """Poll until `missing()` is empty; FabricError with the first that still are after `timeout_s` of kernel time."""
    deadline = time.monotonic() + timeout_s
    while still := missing():
        if time.monotonic() > deadline:
            raise FabricError(f"{what}: after {timeout_s:g} s still not: {', '.join(still[:3])} ({len(still)} in all)")
        time.sleep(POLL_S)
