"""What collectives are tried on: every number of GPUs on the servers that they fill."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emu.collectives.catalogue import schedule
from emu.collectives.placement import Placement
from emu.collectives.schedule import Schedule

IN_SERVERS = {"nvls", "nvls_tree", "collnet_direct", "collnet_chain", "all_to_all_pxn", "all_to_all_burst_pxn"}
BYTES = 131  # prime, so that no number of ranks or channels divides it


def placements(ranks: int, name: str) -> list[Placement]:
    """The servers that a collective is tried on: the biggest that this many GPUs fill, with and without scale-up domain."""
    if name == "nvls":
        return [Placement(ranks, ranks)]
    gpus = [gpus for gpus in (8, 7, 6, 5, 4, 3, 2, 1) if ranks % gpus == 0]
    return [Placement(ranks, gpus[0], scale_up=name in IN_SERVERS or ranks % 3 > 0)]


def cases(name: str, sizes: Iterable[int], size_bytes: int) -> Iterator[Schedule]:
    return (schedule(name, place, size_bytes) for ranks in sizes for place in placements(ranks, name))
