"""An AllReduce over the GPUs of a cluster as NCCL sets it up, as messages of the offloaded NICs.

Channels: one for each rail, fewer where a channel would have less than 16 KiB (32 KiB of traffic, each byte counted twice).
Credits: a connection has 8 buffers; a message of a ring takes two of them, one of a tree one. The sender needs a clear-to-send.
The scale-up domain takes no time: what a GPU sends over its NIC waits for what arrived at its server's.
Source: NCCL src/enqueue.cc (scheduleCollTasksToPlan, MinTrafficPerChannel), src/include/device.h (NCCL_STEPS), domain facts 5.5.
"""

from __future__ import annotations

from typing import Any

from emu.collectives.catalogue import schedule
from emu.collectives.placement import Placement
from emu.collectives.traffic import scale_out_only
from emu.errors import UsageError, unknown
from emu.nic.message import Messages
from emu.nic.messages import from_schedule, side_by_side
from emu.nic.work_request import with_credit
from emu.topology.model import Topology

CHANNEL_MIN_BYTES = 16 << 10
RING_AHEAD, TREE_AHEAD = 4, 8  # messages of 2 and of 1 of the 8 steps
# with a switch that computes in the scale-out network, or without scale-out at all, nothing of it goes from NIC to NIC
ALGORITHMS = ("ring", "tree", "double_tree", "nvls_tree")


def all_reduce(topology: Topology, algo: str, size_bytes: int) -> Messages:
    """Over all GPUs of `topology`, credits included. UsageError: no such algorithm, or a single server."""
    servers, rails = len(topology.servers), topology.servers[0].gpus
    check(algo, servers)
    found = schedule(algo, Placement(topology.gpus, rails), size_bytes, **_options(algo, size_bytes, rails))
    outside = found if found.scale_up_elided else scale_out_only(found)
    return with_credit(from_schedule(outside), RING_AHEAD if algo == "ring" else TREE_AHEAD)


def data_parallel(topology: Topology, algo: str, size_bytes: int) -> Messages:
    """At the same time for each k: AllReduce over the GPUs number k of all servers, as of gradients where TP fills servers."""
    servers, rails = len(topology.servers), topology.servers[0].gpus
    check(algo, servers)
    found = schedule(algo, Placement(servers), size_bytes, channels=1)
    groups = [from_schedule(found, rail) for rail in range(rails)]
    return with_credit(side_by_side(groups), RING_AHEAD if algo == "ring" else TREE_AHEAD)


def channels(size_bytes: int, most: int) -> int:
    return max(1, min(most, -(-size_bytes // CHANNEL_MIN_BYTES)))


def check(algo: str, servers: int) -> None:
    """UsageError: an algorithm whose transfers are not all between NICs, or a single server."""
    if algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)
    if servers < 2:
        raise UsageError("a single server has nothing to send over its NICs; want gpus= at least twice gpus_per_server=")


def _options(algo: str, size_bytes: int, rails: int) -> dict[str, Any]:
    """The single tree is the same for all channels, so one has all its NICs; a double tree has two channels a rail."""
    if algo == "ring":
        return {"channels": channels(size_bytes, rails), "only_scale_out": True}
    if algo == "double_tree":
        return {"channels": channels(-(-size_bytes // 2), rails), "only_scale_out": True}
    return {"only_scale_out": True} if algo == "tree" else {}
