"""Is a schedule right? Every rank ends with every contribution exactly once, in whatever order its transfers may run.

Three questions, each answered exactly:

    form     indexes point back, to what arrives at the sender; sizes are the pieces'; ends differ
    races    of two uses of a piece at a rank that don't commute, one waits for the other. A transfer reads at its source from
             start to end, and writes at its target at its end; so one has to be among the other's ancestors
    outcome  played once in the listed order, contributions are summed as counts per rank: too few and too many both show

Without races every order gives the listed one's outcome, so one play proves them all (a test plays random orders as well).
"""

from __future__ import annotations

from collections.abc import Iterator

from emu.collectives.play import place_at, play
from emu.collectives.schedule import Schedule, Transfer
from emu.errors import UsageError

COUNT_BITS = 16  # of one rank's contribution inside the number that stands for a sum: room to see 65,535 of them


def problems(schedule: Schedule) -> Iterator[str]:
    """One line per fault; nothing for a right schedule. Races and outcome are looked at only where the form is right."""
    if schedule.scale_up_elided:
        raise UsageError(f"{schedule.name}: scale-up transfers are left out; conservation can be checked on the whole only")
    wrong = list(form_problems(schedule))
    yield from wrong or (*race_problems(schedule), *outcome_problems(schedule))


def form_problems(schedule: Schedule) -> Iterator[str]:
    """Holds for schedules without their scale-up transfers too: a wait is then for an arrival at the sender's server."""
    everyone = schedule.ranks + len(schedule.switches)
    sizes = [piece.size_bytes for piece in schedule.pieces]
    for index, transfer in enumerate(schedule.transfers):
        source, target = transfer.source, transfer.target
        if source == target or not (0 <= source < everyone and 0 <= target < everyone):
            yield f"{_named(index, transfer)}: want two different ranks below {everyone}"
            continue
        size_bytes = sum(sizes[piece] for piece in transfer.pieces)
        if not size_bytes or size_bytes != transfer.size_bytes:
            yield (f"{_named(index, transfer)} has {transfer.size_bytes} bytes but its pieces have {size_bytes}; want as many, "
                   "and at least 1")
        if transfer.rails is None and schedule.site(source) != schedule.site(target):
            yield f"{_named(index, transfer)} has no NICs but leaves its server; want rails"
        for before in transfer.after:
            if not 0 <= before < index:
                yield f"{_named(index, transfer)} waits for transfer {before}; want one that is listed before it"
            elif not _meet(schedule, schedule.transfers[before].target, source):
                yield (f"{_named(index, transfer)} waits for what arrives at {schedule.transfers[before].target}; "
                       "want at its source")


def race_problems(schedule: Schedule) -> Iterator[str]:
    """Uses of a place (rank, piece) come in runs of reads, runs of additions, and single copies: each run after the last."""
    ancestors: list[int] = []
    runs: dict[tuple[int, int], tuple[str, int, int]] = {}  # place -> kind, this run, the run before; as bits, like ancestors
    for index, transfer in enumerate(schedule.transfers):
        known = 0
        for before in transfer.after:
            known |= ancestors[before] | 1 << before
        ancestors.append(known)
        for place, kind in _uses(schedule, transfer):
            last_kind, run, earlier = runs.get(place, ("", 0, 0))
            if kind != last_kind or kind == "copy":
                run, earlier = 0, run
            if missing := earlier & ~known:
                first = (missing & -missing).bit_length() - 1
                what, other = _named(index, transfer), _named(first, schedule.transfers[first])
                piece = max(place[1], ~place[1])
                yield f"{what} races with {other} for piece {piece} at rank {place[0]}: want it to wait"
            runs[place] = (kind, run | 1 << index, earlier)


def outcome_problems(schedule: Schedule) -> Iterator[str]:
    """Contributions that a rank has at the end, against those it should have."""
    state = play(schedule, lambda rank, piece: 1 << COUNT_BITS * rank, lambda a, b: a + b)
    everything = sum(1 << COUNT_BITS * rank for rank in range(schedule.ranks))
    for number, piece in enumerate(schedule.pieces):
        want = everything if piece.source is None else 1 << COUNT_BITS * piece.source
        for rank in range(schedule.ranks) if piece.target is None else (piece.target,):
            got = state[rank].get(number, 0)
            if piece.size_bytes and got != want:
                yield f"rank {rank} ends with piece {number} from ranks {_counts(schedule, got)}; want {_counts(schedule, want)}"


def _uses(schedule: Schedule, transfer: Transfer) -> Iterator[tuple[tuple[int, int], str]]:
    for piece in transfer.pieces:
        if schedule.pieces[piece].size_bytes:
            yield (transfer.source, place_at(schedule, transfer, transfer.source, piece)), "read"
            target = place_at(schedule, transfer, transfer.target, piece)
            yield (transfer.target, target), "add" if transfer.reduce else "copy"


def _meet(schedule: Schedule, arrives: int, source: int) -> bool:
    if not schedule.scale_up_elided:
        return arrives == source
    return schedule.site(arrives) == schedule.site(source)


def _counts(schedule: Schedule, packed: int) -> str:
    counts = {rank: packed >> COUNT_BITS * rank & (1 << COUNT_BITS) - 1 for rank in range(schedule.ranks)}
    return ", ".join(f"{rank}" if count == 1 else f"{rank} ({count} times)" for rank, count in counts.items() if count) or "none"


def _named(index: int, transfer: Transfer) -> str:
    return f"transfer {index} ({transfer.source} -> {transfer.target})"
