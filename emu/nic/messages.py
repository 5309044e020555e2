"""From who sends what to whom, to the messages of the offloaded NICs."""

from __future__ import annotations

from collections.abc import Iterable

from emu.collectives.cut import cut
from emu.collectives.schedule import Schedule
from emu.errors import UsageError
from emu.nic.work_request import Message
from emu.topology.model import Port, nic

Pair = tuple[Port, Port]


def from_pairs(pairs: Iterable[Pair], size_bytes: int, qps: int = 1) -> list[Message]:
    """`size_bytes` from each source to its target, split evenly over `qps` connections."""
    shares = [share for share in cut(size_bytes, qps) if share]
    return [Message(source=source, target=target, size_bytes=share, channel=channel)
            for source, target in pairs for channel, share in enumerate(shares)]


def from_schedule(schedule: Schedule) -> list[Message]:
    """The transfers of a schedule that has only scale-out ones (traffic.scale_out_only), NIC to NIC."""
    placement = schedule.placement
    messages = []
    for transfer in schedule.transfers:
        if transfer.rails is None or max(transfer.source, transfer.target) >= schedule.ranks:
            raise UsageError(f"{schedule.name}: a transfer over the scale-up domain or to a switch is no NIC's; leave it out")
        source, target = placement.server(transfer.source), placement.server(transfer.target)
        messages.append(Message(
            source=nic(source, transfer.rails[0]), target=nic(target, transfer.rails[1]), size_bytes=transfer.size_bytes,
            after=transfer.after, channel=transfer.channel,
        ))
    return messages
