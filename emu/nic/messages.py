"""From who sends what to whom, to the messages of the offloaded NICs."""

from __future__ import annotations

from collections.abc import Iterable

from emu.collectives.cut import cut
from emu.collectives.schedule import Schedule
from emu.errors import UsageError
from emu.nic.message import Message, Messages
from emu.topology.model import Port, nic

Pair = tuple[Port, Port]


def from_pairs(pairs: Iterable[Pair], size_bytes: int, qps: int = 1) -> list[Message]:
    """`size_bytes` from each source to its target, split evenly over `qps` connections."""
    shares = [share for share in cut(size_bytes, qps) if share]
    return [Message(source=source, target=target, size_bytes=share, channel=channel)
            for source, target in pairs for channel, share in enumerate(shares)]


def from_schedule(schedule: Schedule, rail: int | None = None) -> Messages:
    """The transfers of a schedule that has only scale-out ones (traffic.scale_out_only), NIC to NIC.

    `rail`: the NIC of every server, in place of the schedule's; for one over servers, a rank each.
    """
    placement, messages = schedule.placement, Messages()
    numbers = [[messages.number(nic(server, gpu if rail is None else rail)) for gpu in range(placement.gpus_per_server)]
               for server in range(placement.servers)]
    of_rank = [numbers[placement.server(rank)] for rank in range(schedule.ranks)]
    for source, target, size_bytes, after, channel, _, _, rails, _ in schedule.transfers:
        if rails is None or max(source, target) >= schedule.ranks:
            raise UsageError(f"{schedule.name}: a transfer over the scale-up domain or to a switch is no NIC's; leave it out")
        messages.add(of_rank[source][rails[0]], of_rank[target][rails[1]], size_bytes, after, channel)
    return messages


def side_by_side(groups: Iterable[Iterable[Message]]) -> Messages:
    """Groups that know nothing of each other, as one list."""
    messages = Messages()
    for group in groups:
        first = len(messages)
        for source, target, size_bytes, after, channel in group:
            number = messages.number(source), messages.number(target)
            messages.add(*number, size_bytes, [first + before for before in after], channel)
    return messages
