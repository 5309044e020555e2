"""A connection matrix as messages: start times by the nodes' metronomes, triggers by what arrives, or by a notice.

Node n is GPU n of the cluster. htsim's triggers know at once what ended anywhere; here a flow that waits for one which ended
on another server waits for a NOTICE_BYTES message from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.nic.cluster import Cluster, Requests
from emu.nic.message import Messages
from emu.topology.metronome import metronome
from emu.workload.compute_clock import ComputeClock
from emu.workload.htsim_matrix import ConnectionMatrix, Flow

NOTICE_BYTES, NOTICE_CHANNEL = 64, 1
PS_PER_NS = 1000


@dataclass(frozen=True)
class Flows:
    """`indexes`: the message of each flow, in the matrix's order. `notices`: how many were added."""

    matrix: ConnectionMatrix
    messages: Messages
    indexes: Sequence[int]
    notices: int


def start_gaps_ns(matrix: ConnectionMatrix) -> list[int]:
    """What the metronomes have to tell: from one start of a node to its next."""
    return [gap for starts in _starts(matrix).values() for gap in _gaps(starts)]


def flows(matrix: ConnectionMatrix, cluster: Cluster, clock: ComputeClock) -> Flows:
    """Flows of one pair of nodes share a connection and go out one after the other."""
    requests = Requests(cluster)
    told = {node: _tell(requests, node, starts, clock) for node, starts in _starts(matrix).items()}
    indexes: list[int] = []
    for flow in matrix.flows:
        start_ns = flow.start_ps // PS_PER_NS
        after = [_notice(requests, matrix.flows[before], indexes[before], flow) for before in flow.after]
        after += [told[flow.source][start_ns]] if start_ns and not flow.after else []
        indexes.append(requests.send(cluster.nic(flow.source), cluster.nic(flow.target), flow.size_bytes, after))
    notices = sum(message.channel == NOTICE_CHANNEL for message in requests.messages)
    return Flows(matrix, requests.messages, indexes, notices)


def _starts(matrix: ConnectionMatrix) -> dict[int, list[int]]:
    """By node, its start times above 0 in ns, ascending, each once."""
    found: dict[int, set[int]] = {}
    for flow in matrix.flows:
        if not flow.after and flow.start_ps >= PS_PER_NS:
            found.setdefault(flow.source, set()).add(flow.start_ps // PS_PER_NS)
    return {node: sorted(starts) for node, starts in found.items()}


def _gaps(starts: Sequence[int]) -> list[int]:
    return [start - before for before, start in zip([0, *starts], starts, strict=False)]


def _tell(requests: Requests, node: int, starts: Sequence[int], clock: ComputeClock) -> dict[int, int]:
    """start -> the message that arrives then."""
    ends = metronome(*divmod(node, requests.cluster.gpus_per_server))
    told: dict[int, int] = {}
    for start, gap in zip(starts, _gaps(starts), strict=True):
        for size_bytes in clock.sizes(gap, straight_on=bool(told)):
            told[start] = requests.send(*ends, size_bytes)
    return told


def _notice(requests: Requests, before: Flow, index: int, flow: Flow) -> int:
    """What the flow waits for: the end of the one before, or the word of it."""
    there, here = requests.cluster.nic(before.target), requests.cluster.nic(flow.source)
    if there.node == here.node:
        return index
    return requests.send(there, here, NOTICE_BYTES, (index,), NOTICE_CHANNEL)
