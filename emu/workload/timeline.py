"""When each event of an iteration runs, given how long each takes: what a picture of the iteration is drawn from.

Durations come from outside, so that a run can put measured ones in place of emu/workload/links.py's bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from emu.workload.event import KINDS, Event


class Bar(NamedTuple):
    lane: str
    start_ns: int
    end_ns: int
    kind: str
    name: str


def timeline(events: Iterable[Event], duration_ns: Callable[[Event], int]) -> list[Bar]:
    """A bar for each event, in their order; each starts when the last of those it waits for ends."""
    bars: list[Bar] = []
    for event in events:
        start_ns = max((bars[before].end_ns for before in event.after), default=0)
        bars.append(Bar(event.lane, start_ns, start_ns + duration_ns(event), event.kind, event.name))
    return bars


def end_ns(bars: Iterable[Bar]) -> int:
    return max((bar.end_ns for bar in bars), default=0)


def busy_ns(bars: Iterable[Bar], lane: str) -> dict[str, int]:
    """By kind, how long the lane is at it. What is left of the iteration, the lane waits."""
    total = dict.fromkeys(KINDS, 0)
    for bar in bars:
        if bar.lane == lane:
            total[bar.kind] += bar.end_ns - bar.start_ns
    return total
