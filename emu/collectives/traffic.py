"""What a schedule puts on which kind of link, and what is left of it where only the scale-out network is emulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from emu.collectives.schedule import Schedule, Transfer


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes of the listed transfers by kind of link; messages and connections (source, target, channel) of the scale-out network.

    scale_up_bytes has those too that only go over it to another GPU's NIC.
    """

    scale_up_bytes: int
    same_rail_bytes: int
    cross_rail_bytes: int
    messages: int
    connections: int


def traffic(schedule: Schedule) -> Traffic:
    outside = [transfer for transfer in schedule.transfers if transfer.rails is not None]
    inside = sum(transfer.size_bytes for transfer in schedule.transfers if transfer.rails is None)
    same = sum(transfer.size_bytes for transfer in outside if transfer.rails[0] == transfer.rails[1])
    return Traffic(
        scale_up_bytes=inside + sum(_relayed_bytes(schedule, transfer) for transfer in outside),
        same_rail_bytes=same,
        cross_rail_bytes=sum(transfer.size_bytes for transfer in outside) - same,
        messages=len(outside),
        connections=len({(transfer.source, transfer.target, transfer.channel) for transfer in outside}),
    )


def scale_out_only(schedule: Schedule) -> Schedule:
    """The scale-out transfers alone, as if the scale-up domain took no time: each waits for what its scale-up transfers did.

    What a transfer waits for then arrives at the sender's server, no longer at the sender itself.
    """
    kept: list[Transfer] = []
    stands_for: list[tuple[int, ...]] = []  # of each old transfer: the new ones whose arrival means its own
    for transfer in schedule.transfers:
        after = tuple(sorted({new for old in transfer.after for new in stands_for[old]}))
        if transfer.rails is not None:
            stands_for.append((len(kept),))
            kept.append(transfer._replace(after=after))
        else:
            stands_for.append(after)
    return replace(schedule, transfers=kept, scale_up_elided=True)


def _relayed_bytes(schedule: Schedule, transfer: Transfer) -> int:
    """Bytes on the way to the NIC of another GPU of the server; NCCL does so at the sender only (PXN), receiving is direct."""
    source, rails = transfer.source, transfer.rails
    away = rails is not None and source < schedule.ranks and schedule.placement.gpu(source) != rails[0]
    return transfer.size_bytes if away else 0
