"""Schedules as messages over both networks: NICs for scale-out, the GPUs' ports for scale-up.

A GPU sends by its own NIC; where a schedule wants another's (PXN, the last GPU of a ring's server), the data first go over
the scale-up domain to the GPU of that NIC. Receiving is direct, as with GPUDirect RDMA. Without a live scale-up domain what
it carries takes no time and is not sent: whoever waits for it waits for what it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emu.collectives.cut import cut
from emu.collectives.schedule import Schedule, Transfer
from emu.errors import UsageError
from emu.nic.message import Messages
from emu.topology.model import Port, nic
from emu.topology.scale_up import ScaleUp
from emu.workload.schedules import Placed

MOST_MESSAGES = 1 << 20  # beyond, building takes minutes and gigabytes
RELAYED = 1 << 20  # added to the channel of what another GPU passes on, so that direct messages don't wait behind it
Indexes = tuple[int, ...]  # of messages that have to arrive first
Ready = Mapping[int, Indexes]  # by rank


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Rank r is GPU r mod g of server r div g. scale_up=None: none is live. `nic_of`: the NIC of each GPU; (): its own number."""

    gpus_per_server: int
    scale_up: ScaleUp | None = None
    nic_of: tuple[int, ...] = ()

    def nic(self, rank: int, gpu: int | None = None) -> Port:
        """The NIC of GPU `gpu` (default: the rank's own) in the rank's server."""
        server, own = divmod(rank, self.gpus_per_server)
        gpu = own if gpu is None else gpu
        return nic(server, self.nic_of[gpu] if self.nic_of else gpu)


class Requests:
    """Messages while they are collected, each after those it waits for."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.messages = Messages()

    def send(self, source: Port, target: Port, size_bytes: int, after: Iterable[int] = (), channel: int = 0) -> int:
        """Index of the new message; UsageError when there are too many."""
        if len(self.messages) >= MOST_MESSAGES:
            raise UsageError(f"more than {MOST_MESSAGES:,} messages; want fewer ranks, layers or micro-batches")
        ends = self.messages.number(source), self.messages.number(target)
        self.messages.add(*ends, size_bytes, sorted(after), channel)
        return len(self.messages) - 1

    def run(self, placed: Placed, ready: Ready, channel: int = 0) -> dict[int, Indexes]:
        """A collective whose ranks begin when their messages in `ready` are there; by rank, what ends it there.

        Only the first message of a connection waits for `ready`: the others go out after it.
        """
        arrived: list[Indexes] = []
        begun: set[tuple[int, int, int]] = set()
        ended = {rank: dict.fromkeys(ready.get(rank, ())) for rank in placed.ranks}
        for transfer in placed.schedule.transfers:
            source, target = placed.ranks[transfer.source], placed.ranks[transfer.target]
            after = dict.fromkeys(index for before in transfer.after for index in arrived[before])
            connection = source, target, transfer.channel
            if connection not in begun or (transfer.rails is None and not self.cluster.scale_up):
                begun.add(connection)
                after |= dict.fromkeys(ready.get(source, ()))
            arrived.append(self._transfer(placed, transfer, tuple(after), channel + transfer.channel))
            ended[target] |= dict.fromkeys(arrived[-1])
        return {rank: tuple(indexes) for rank, indexes in ended.items()}

    def _transfer(self, placed: Placed, transfer: Transfer, after: Indexes, channel: int) -> Indexes:
        source, target = placed.ranks[transfer.source], placed.ranks[transfer.target]
        if transfer.rails is None:
            return self._scale_up(source, target, transfer.size_bytes, after, channel)
        gpus = [placed.gpus[rail] for rail in transfer.rails]
        through = source - source % self.cluster.gpus_per_server + gpus[0]
        if through != source:
            after = self._scale_up(source, through, transfer.size_bytes, after, channel)
        ends = self.cluster.nic(source, gpus[0]), self.cluster.nic(target, gpus[1])
        return (self.send(*ends, transfer.size_bytes, after, channel),)

    def _scale_up(self, source: int, target: int, size_bytes: int, after: Indexes, channel: int) -> Indexes:
        """An even share over each plane, hop by hop."""
        scale_up = self.cluster.scale_up
        if scale_up is None:
            return after
        arrived = []
        for plane, share in enumerate(cut(size_bytes, scale_up.planes)):
            hops, before = scale_up.hops(source, target, plane), after
            for hop in hops if share else ():
                before = (self.send(*hop, share, before, channel + RELAYED * (len(hops) > 1)),)
            arrived += before if share else ()
        return tuple(arrived)


def over_both(schedule: Schedule, cluster: Cluster) -> Messages:
    """A schedule over all GPUs of the cluster, by itself."""
    requests = Requests(cluster)
    placement = schedule.placement
    requests.run(Placed(schedule, tuple(range(placement.ranks)), tuple(range(placement.gpus_per_server))), {})
    return requests.messages
