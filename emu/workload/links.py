"""Which links an iteration's bytes cross: between GPUs of one server (scale-up) or between servers (scale-out).

Rank r is GPU r mod g of server r div g. AllReduce, reduce-scatter and all-gather are taken as rings in group order, in which
a server's GPUs of the group share what leaves it, each with its own NIC (NCCL: as many channels as NICs); all-to-all goes
straight to its target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from emu.errors import UsageError
from emu.workload.event import KINDS, Event, senders, sent_share
from emu.workload.job import Groups

NS = 1_000_000_000


class Load(NamedTuple):
    """Bytes of one group's collective over its size: all on either kind of link; out of the busiest GPU by port, by NIC."""

    scale_up: Fraction
    scale_out: Fraction
    busiest_port: Fraction
    busiest_nic: Fraction


@dataclass(frozen=True, kw_only=True)
class Links:
    """Rates of a GPU's scale-up port and of its NIC, bit/s, one direction. A communication takes what its busiest link takes.

    Called with an event: its duration in ns. No latency, no contention: the bound that a measurement is held against.
    """

    scale_up_bps: int
    nic_bps: int
    gpus_per_server: int

    def __post_init__(self) -> None:
        for field in ("scale_up_bps", "nic_bps", "gpus_per_server"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field}={getattr(self, field)}; want at least 1")

    def __call__(self, event: Event) -> int:
        if event.collective is None:
            return event.duration_ns
        port, nic = _busiest(event.collective, event.groups, self.gpus_per_server)
        return round(8 * NS * event.size_bytes * max(port / self.scale_up_bps, nic / self.nic_bps))


def sent_by_link(events: Iterable[Event], gpus_per_server: int) -> dict[str, tuple[Fraction, Fraction]]:
    """By kind, the bytes on scale-up and those on scale-out, of all ranks together."""
    total = dict.fromkeys(KINDS[1:], (Fraction(0), Fraction(0)))
    for event in events:
        if event.collective:
            (up, out), (inside, outside) = total[event.kind], _all(event.collective, event.groups, gpus_per_server)
            total[event.kind] = up + event.size_bytes * inside, out + event.size_bytes * outside
    return total


def crosses_servers(event: Event, gpus_per_server: int) -> bool:
    """Has the scale-out network anything to carry of this event?"""
    return event.collective is not None and _all(event.collective, event.groups, gpus_per_server)[1] > 0


@lru_cache(maxsize=4096)
def load(collective: str, group: tuple[int, ...], gpus_per_server: int) -> Load:
    servers = [rank // gpus_per_server for rank in group]
    if collective == "all_to_all":
        return _scattered(servers)
    hops = list(zip(servers, servers[1:] + servers[:1], strict=True))[:senders(collective, len(group))]
    leaving = [source for source, target in hops if source != target]
    share, local = sent_share(collective, len(group)), len(hops) - len(leaving)
    per_nic = max((Fraction(leaving.count(server), servers.count(server)) for server in set(leaving)), default=Fraction(0))
    return Load(share * local, share * len(leaving), share * (local > 0), share * per_nic)


def _scattered(servers: list[int]) -> Load:
    """A block for every other rank: from the server of each."""
    ranks = len(servers)
    peers = [servers.count(server) - 1 for server in servers]
    return Load(
        Fraction(sum(peers), ranks), Fraction(sum(ranks - 1 - near for near in peers), ranks),
        Fraction(max(peers), ranks), Fraction(ranks - 1 - min(peers), ranks),
    )


@lru_cache(maxsize=1024)
def _all(collective: str, groups: Groups, gpus_per_server: int) -> tuple[Fraction, Fraction]:
    loads = [load(collective, group, gpus_per_server) for group in groups]
    return sum((one.scale_up for one in loads), Fraction(0)), sum((one.scale_out for one in loads), Fraction(0))


@lru_cache(maxsize=1024)
def _busiest(collective: str, groups: Groups, gpus_per_server: int) -> tuple[Fraction, Fraction]:
    loads = [load(collective, group, gpus_per_server) for group in groups]
    return max(one.busiest_port for one in loads), max(one.busiest_nic for one in loads)
