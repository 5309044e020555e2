"""The traffic that load balancers are compared with, as messages: by name for scenarios to choose from."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from emu.collectives.all_to_all import all_to_all
from emu.collectives.placement import Placement
from emu.collectives.ring import ring_all_reduce
from emu.errors import UsageError
from emu.nic.cluster import MOST_MESSAGES
from emu.nic.messages import from_pairs, from_schedule
from emu.nic.work_request import Message
from emu.topology.model import Topology
from emu.workload import patterns


class Size(NamedTuple):
    """size_bytes as the pattern counts it, queue pairs a connection, NICs of a group."""

    size_bytes: int
    qps: int
    group_gpus: int


def permutation(topology: Topology, size: Size, rng: Random) -> list[Message]:
    return from_pairs(patterns.permutation(topology, rng), size.size_bytes, size.qps)


def all_to_all_in_groups(topology: Topology, size: Size, rng: Random) -> list[Message]:
    """NCCL's order in every group at the same time; a block is one message on one queue pair of each pair of NICs.

    Listed round by round over all groups, as they run: the order in which a controller is told the connections.
    """
    groups = patterns.groups(topology, size.group_gpus)
    transfers = all_to_all(Placement(size.group_gpus, scale_up=False), size.size_bytes).transfers
    return [
        Message(source=group[transfer.source], target=group[transfer.target], size_bytes=transfer.size_bytes,
                after=tuple(before * len(groups) + number for before in transfer.after))
        for transfer in transfers for number, group in enumerate(groups)
    ]


def all_reduce(topology: Topology, size: Size, rng: Random) -> list[Message]:
    """A ring channel for each rail and each queue pair: channels take queue pairs in turn, as NCCL duplicates them.

    UsageError, before they take all memory, if these are too many messages.
    """
    rails, servers = topology.servers[0].gpus, len(topology.servers)
    of_channel = 2 * (topology.gpus - 1) * servers
    if rails * size.qps * of_channel > MOST_MESSAGES:
        most = MOST_MESSAGES // (rails * of_channel)
        raise UsageError(f"a ring over {topology.gpus} GPUs with qps={size.qps} has {rails * size.qps * of_channel:,} messages, "
                         f"more than {MOST_MESSAGES:,}; want {f'qps up to {most}, or fewer GPUs' if most else 'fewer GPUs'}")
    placement = Placement(topology.gpus, rails)
    return from_schedule(ring_all_reduce(placement, size.size_bytes, channels=rails * size.qps, only_scale_out=True))


PATTERNS: dict[str, Callable[[Topology, Size, Random], list[Message]]] = {
    "permutation": permutation,
    "all_to_all": all_to_all_in_groups,
    "allreduce": all_reduce,
}
