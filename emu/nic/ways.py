"""The ports that each transfer of a schedule goes through on a live cluster, to and from switches that compute included.

Between GPUs as in emu/nic/cluster.py: over the scale-up domain hop by hop (its first plane), or from NIC to NIC; where the
schedule wants the NIC of another GPU of the sender's server, first over the scale-up domain to that GPU.

A switch that computes (Schedule.switches) is the one at the other end of the GPUs' own cables, with a port for each GPU:
`nvswitch<s>` is the scale-up switch of server s, `sharp<k>` the leaf under which all NICs of rail k are, which stands for a
whole tree of switches that add. What is for it ends at such a port and carries that port's address; what is from it begins there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emu.collectives.schedule import Schedule, Transfer
from emu.errors import UsageError
from emu.nic.cluster import Cluster
from emu.topology.model import Port
from emu.topology.plan import Plan
from emu.topology.scale_up import Hop, ScaleUp

Way = tuple[Hop, ...]  # messages one after the other, each from port to port


def ways(schedule: Schedule, cluster: Cluster, plan: Plan) -> list[Way]:
    """Of every transfer. UsageError: scale-up transfers without scale-up domain, a switch that would be two."""
    if schedule.scale_up_elided:
        raise UsageError(f"{schedule.name}: scale-up transfers are left out; want the whole schedule, or numbers don't move")
    peers = {port: planned.peer for port, planned in plan.ports.items()}
    found = [tuple(_hops(schedule, cluster, peers, transfer)) for transfer in schedule.transfers]
    _check_switches(schedule, found)
    return found


def _hops(schedule: Schedule, cluster: Cluster, peers: dict[Port, Port], transfer: Transfer) -> Iterator[Hop]:
    source, target, rails = transfer.source, transfer.target, transfer.rails
    if source >= schedule.ranks:
        port = _own_port(cluster, target, rails and rails[1])
        yield peers[port], port
        return
    through = source if rails is None else source - source % cluster.gpus_per_server + rails[0]
    if through != source:
        yield from _scale_up(cluster).hops(source, through)
    if target >= schedule.ranks:
        port = _own_port(cluster, through, rails and rails[0])
        yield port, peers[port]
    elif rails is None:
        yield from _scale_up(cluster).hops(source, target)
    else:
        yield cluster.nic(source, rails[0]), cluster.nic(target, rails[1])


def _own_port(cluster: Cluster, rank: int, rail: int | None) -> Port:
    """The port with which a GPU is at a switch: NIC `rail` of its server, None: its port to the scale-up switch."""
    return _scale_up(cluster).switch_port(rank) if rail is None else cluster.nic(rank, rail)


def _scale_up(cluster: Cluster) -> ScaleUp:
    if cluster.scale_up is None:
        raise UsageError("the schedule sends over scale-up links, but the cluster has none; want one with_scale_up")
    return cluster.scale_up


def _check_switches(schedule: Schedule, found: Sequence[Way]) -> None:
    """Each switch that computes has all its ports on one box, or it would not have everything that it has to add."""
    boxes: list[set[str]] = [set() for _ in schedule.switches]
    for transfer, way in zip(schedule.transfers, found, strict=True):
        for rank, port in ((transfer.source, way[0][0]), (transfer.target, way[-1][1])):
            if rank >= schedule.ranks:
                boxes[rank - schedule.ranks].add(port.node)
    for switch, nodes in zip(schedule.switches, boxes, strict=True):
        if len(nodes) > 1:
            raise UsageError(f"{switch.name} would be {' and '.join(sorted(nodes))}; want its GPUs' ports at one switch, "
                             "as where leaf_down holds all servers")
