"""An iteration's events as one chain of messages: computations on the metronomes, collectives on NICs and scale-up ports.

A rank begins an event when what it waits for has ended at that rank, as real processes do, so that ranks and replicas drift
apart where the network lets them. Every kind of traffic has connections of its own, as NCCL's communicators have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from emu.nic.cluster import RELAYED, Cluster, Indexes, Requests
from emu.nic.message import Messages
from emu.topology.metronome import metronome
from emu.workload.compute_clock import ComputeClock
from emu.workload.event import KINDS, Event
from emu.workload.schedules import Placed, schedules

CHANNELS = 1024  # of a kind of traffic
RINGS = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Chain:
    """`ends`: by event, the messages with which it has ended everywhere. `nic_of`: as in Cluster.

    `transfer_bytes`: of the schedules, by (kind of traffic, kind of link).
    """

    events: Sequence[Event]
    messages: Messages
    ends: Sequence[Indexes]
    transfer_bytes: Counter[tuple[str, str]]
    nic_of: tuple[int, ...]


def kind_of(channel: int) -> str:
    """What a connection is there for."""
    return KINDS[channel % RELAYED // CHANNELS]


def chain(events: Sequence[Event], cluster: Cluster, clock: ComputeClock, *, pxn: bool = False) -> Chain:
    """UsageError: too many messages, a group that has not the same GPUs in each of its servers."""
    build = _Build(cluster, clock, pxn)
    for event in events:
        build.add(event)
    ends = [tuple({index for indexes in ended.values() for index in indexes}) for ended in build.ended]
    return Chain(events, build.requests.messages, ends, build.transfer_bytes, cluster.nic_of)


@dataclass
class _Build:
    cluster: Cluster
    clock: ComputeClock
    pxn: bool
    ended: list[dict[int, Indexes]] = field(default_factory=list)  # by event and rank
    transfer_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.requests = Requests(self.cluster)
        self._placed: dict[tuple, list[Placed]] = {}

    def add(self, event: Event) -> None:
        ready = {rank: self._ready(event, rank) for rank in event.ranks}
        channel = KINDS.index(event.kind) * CHANNELS
        if event.collective is None:
            self.ended.append({rank: self._compute(rank, event.duration_ns, ready[rank], channel) for rank in event.ranks})
            return
        ended: dict[int, Indexes] = {}
        for placed in self._schedules(event):
            ended |= self.requests.run(placed, ready, channel)
            for transfer in placed.schedule.transfers:
                self.transfer_bytes[event.kind, transfer.link] += transfer.size_bytes
        self.ended.append(ended)

    def _ready(self, event: Event, rank: int) -> Indexes:
        return tuple(dict.fromkeys(index for before in event.after for index in self.ended[before].get(rank, ())))

    def _compute(self, rank: int, duration_ns: int, ready: Indexes, channel: int) -> Indexes:
        if not duration_ns:
            return ready
        ends = metronome(*divmod(rank, self.cluster.gpus_per_server))
        straight_on = len(ready) == 1 and self.requests.messages[ready[0]].source == ends[0]
        sizes = self.clock.sizes(duration_ns, straight_on=straight_on)
        return (max(self.requests.send(*ends, size_bytes, ready, channel) for size_bytes in sizes),)

    def _schedules(self, event: Event) -> list[Placed]:
        """Made once for all events that are alike."""
        key = event.collective, event.size_bytes, event.groups
        if key not in self._placed:
            algorithm = "all_to_all_pxn" if self.pxn and event.collective == "all_to_all" else None
            self._placed[key] = list(schedules(event, self.cluster.gpus_per_server, algorithm, **self._options(event)))
        return self._placed[key]

    def _options(self, event: Event) -> dict[str, int]:
        """A ring that leaves its server has a channel for each NIC of it."""
        gpus = self.cluster.gpus_per_server
        group = event.groups[0]
        crosses = len({rank // gpus for rank in group}) > 1
        return {"channels": len({rank % gpus for rank in group})} if event.collective in RINGS and crosses else {}
