"""One thing that happens in a training iteration: a computation, or a collective that several groups of ranks run alike.

Data-parallel replicas do the same at the same time, so one event stands for all of them: `groups` has the ranks of each, in
group order. A group begins when those groups of the events in `after` that share a rank with it have ended.
Sizes are counted as nccl-tests counts them (emu/collectives/formulas.py), so that an event can be handed to a collective.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from emu.workload.job import Groups

KINDS = ("compute", "tp", "pp", "dp", "ep")  # what a transfer is there for


class Event(NamedTuple):
    """`collective` is None for a computation, which takes `duration_ns` on every rank; `lane` is where a timeline draws it.

    send_recv: the first rank of each group sends to the second. `after`: indexes of earlier events.
    """

    name: str
    kind: str
    lane: str
    groups: Groups
    collective: str | None = None
    size_bytes: int = 0
    duration_ns: int = 0
    after: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(rank for group in self.groups for rank in group)


def sent_by_kind(events: Iterable[Event]) -> dict[str, Fraction]:
    """Bytes that all ranks together send in the iteration, by kind and whatever the links; compute sends nothing."""
    total = dict.fromkeys(KINDS[1:], Fraction(0))
    for event in events:
        if event.collective:
            total[event.kind] += event.size_bytes * _sent(event.collective, event.groups)
    return total


def sent_per_rank(events: Iterable[Event]) -> dict[str, Fraction]:
    """Bytes that a rank which takes part in all of these events sends (of a pair: the sender), by kind."""
    total = dict.fromkeys(KINDS[1:], Fraction(0))
    for event in events:
        if event.collective:
            total[event.kind] += event.size_bytes * sent_share(event.collective, len(event.groups[0]))
    return total


def sent_share(collective: str, ranks: int) -> Fraction:
    """Bytes that a sending rank sends, over the collective's size: nccl-tests' bus factor, exact."""
    if collective == "send_recv":
        return Fraction(1)
    return Fraction((2 if collective == "all_reduce" else 1) * (ranks - 1), ranks)


def senders(collective: str, ranks: int) -> int:
    return 1 if collective == "send_recv" else ranks


@lru_cache(maxsize=1024)
def _sent(collective: str, groups: Groups) -> Fraction:
    return sum((sent_share(collective, len(group)) * senders(collective, len(group)) for group in groups), Fraction(0))
