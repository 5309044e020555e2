"""Short stretches that Ctrl-C must not cut in two: making and removing what would stay behind otherwise."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

DEFERRED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextmanager
def undisturbed() -> Iterator[None]:
    """The signals that end a run wait until the block is done; then they act as ever."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DEFERRED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
