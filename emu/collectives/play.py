"""Playing a schedule with real values: what every rank holds once all transfers have run, in the listed or in a random order.

The values are the caller's: counts of contributions (conservation.py), or a buffer's numbers with their addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from emu.collectives.schedule import Schedule, Transfer

State = list[dict[int, Any]]  # by rank: what it has of each piece
Load = dict[int, Any]


def play(
    schedule: Schedule, contribution: Callable[[int, int], Any], add: Callable[[Any, Any], Any], rng: Random | None = None
) -> State:
    """What every rank has of each piece in the end. `contribution(rank, piece)` is what it has at the start.

    A transfer takes what its source has when it starts and gives it when it arrives; `rng` starts and lands them in a random
    order that respects `after`, without it they run one by one as listed. What a source does not have is not given.
    """
    board = Board(schedule, add)
    board.fill(contribution)
    for index, lands in _at_random(schedule, rng) if rng else _as_listed(schedule):
        (board.land if lands else board.start)(index)
    return board.result()


def place_at(schedule: Schedule, transfer: Transfer, rank: int, piece: int) -> int:
    """Where a transfer reads or writes a piece at one of its ends: `piece`, or ~piece for the user's buffer."""
    return ~piece if transfer.user_buffer and rank < schedule.ranks else piece


@dataclass
class Board:
    """The ranks' buffers, and what is under way between them."""

    schedule: Schedule
    add: Callable[[Any, Any], Any]
    state: State = field(default_factory=list)
    under_way: dict[int, Load] = field(default_factory=dict)

    def fill(self, contribution: Callable[[int, int], Any]) -> None:
        schedule = self.schedule
        self.state = [{} for _ in range(schedule.ranks + len(schedule.switches))]
        apart = {
            (rank, piece) for transfer in schedule.transfers if transfer.user_buffer
            for rank in (transfer.source, transfer.target) for piece in transfer.pieces
        }
        for number, piece in enumerate(schedule.pieces):
            for rank in range(schedule.ranks) if piece.source is None else (piece.source,):
                self.state[rank][~number if (rank, number) in apart else number] = contribution(rank, number)

    def start(self, index: int) -> None:
        transfer = self.schedule.transfers[index]
        held, source = self.state[transfer.source], transfer.source
        places = {piece: place_at(self.schedule, transfer, source, piece) for piece in transfer.pieces}
        self.under_way[index] = {piece: held[place] for piece, place in places.items() if place in held}

    def land(self, index: int) -> None:
        transfer = self.schedule.transfers[index]
        held = self.state[transfer.target]
        for piece, value in self.under_way.pop(index).items():
            place = place_at(self.schedule, transfer, transfer.target, piece)
            held[place] = self.add(held[place], value) if transfer.reduce and place in held else value

    def result(self) -> State:
        """What the user's buffers hold, where a rank keeps sums apart from them."""
        for held in self.state:
            held.update({~place: held.pop(place) for place in list(held) if place < 0})
        return self.state


def _as_listed(schedule: Schedule) -> Iterator[tuple[int, bool]]:
    for index in range(len(schedule.transfers)):
        yield index, False
        yield index, True


def _at_random(schedule: Schedule, rng: Random) -> Iterator[tuple[int, bool]]:
    """(transfer, whether it lands or starts): any event that may be next is as likely as the others."""
    missing = [len(transfer.after) for transfer in schedule.transfers]
    releases: list[list[int]] = [[] for _ in missing]
    for index, transfer in enumerate(schedule.transfers):
        for before in transfer.after:
            releases[before].append(index)
    events = [(index, False) for index, count in enumerate(missing) if not count]
    while events:
        place = rng.randrange(len(events))
        events[place], events[-1] = events[-1], events[place]
        index, lands = events.pop()
        yield index, lands
        if not lands:
            events.append((index, True))
            continue
        for released in releases[index]:
            missing[released] -= 1
            if not missing[released]:
                events.append((released, False))
