"""From an event of an iteration to transfers that NICs can carry: the collective's schedule for one group of ranks.

The schedule numbers the group's ranks 0, 1, …; `ranks` and `gpus` say which of the cluster's they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emu.collectives.catalogue import schedule
from emu.collectives.placement import Placement
from emu.collectives.schedule import Builder, Schedule
from emu.errors import UsageError
from emu.workload.event import Event

ALGORITHM = {
    "all_reduce": "ring", "reduce_scatter": "reduce_scatter", "all_gather": "all_gather", "all_to_all": "all_to_all",
}


@dataclass(frozen=True)
class Placed:
    """ranks[i]: the cluster's rank that the schedule calls i. gpus[k]: the GPU of its server, so the rail, that it calls k."""

    schedule: Schedule
    ranks: tuple[int, ...]
    gpus: tuple[int, ...]


def schedules(event: Event, gpus_per_server: int, algorithm: str | None = None, **options: Any) -> Iterator[Placed]:
    """One for each group. `algorithm`: a name of emu/collectives/catalogue.py for the same collective, `options` are its.

    UsageError: a computation, a group that has not the same GPUs in each of its servers, a name or options that don't fit.
    """
    if event.collective is None:
        raise UsageError(f"{event.name} is a computation; want an event that sends")
    for group in event.groups:
        if event.collective == "send_recv":
            yield _pair(event, group, gpus_per_server)
        else:
            yield _together(event, group, gpus_per_server, algorithm or ALGORITHM[event.collective], options)


def _together(
    event: Event, group: tuple[int, ...], gpus_per_server: int, algorithm: str, options: dict[str, Any]
) -> Placed:
    gpus = tuple(sorted({rank % gpus_per_server for rank in group}))
    _check_even(event, group, gpus, gpus_per_server)
    made = schedule(algorithm, Placement(len(group), len(gpus)), event.size_bytes, **options)
    if made.collective != event.collective:
        raise UsageError(f"{event.name} is {event.collective}, {algorithm} is {made.collective}; want an algorithm for the same")
    return Placed(made, group, gpus)


def _pair(event: Event, group: tuple[int, ...], gpus_per_server: int) -> Placed:
    """One transfer: the catalogue's send_recv has every rank send."""
    (server, gpu), (to_server, to_gpu) = (divmod(rank, gpus_per_server) for rank in group)
    gpus = (gpu,) if gpu == to_gpu else (gpu, to_gpu)
    inside = server == to_server
    build = Builder()
    build.send(0, 1, build.piece(event.size_bytes, 0, 1), None if inside else (0, len(gpus) - 1))
    return Placed(Schedule(
        name="send_recv", collective="send_recv", placement=Placement(2, 2 if inside else 1), size_bytes=event.size_bytes,
        pieces=build.pieces, transfers=build.transfers,
    ), group, gpus)


def _check_even(event: Event, group: tuple[int, ...], gpus: tuple[int, ...], gpus_per_server: int) -> None:
    servers = sorted({rank // gpus_per_server for rank in group})
    if [server * gpus_per_server + gpu for server in servers for gpu in gpus] != list(group):
        raise UsageError(
            f"{event.name}: ranks {group[0]} to {group[-1]} have not the same GPUs in each server of {gpus_per_server}; want "
            f"sizes of tp, dp and ep that divide {gpus_per_server} or are multiples of it"
        )
