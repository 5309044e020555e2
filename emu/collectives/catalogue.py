"""The collectives by name: one table for scenarios to choose from and for the conservation test to go through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from emu.collectives.all_to_all import all_to_all, send_recv
from emu.collectives.collnet import collnet_chain_all_reduce, collnet_direct_all_reduce
from emu.collectives.double_tree import double_tree_all_reduce
from emu.collectives.nvls import nvls_all_reduce, nvls_tree_all_reduce
from emu.collectives.placement import Placement
from emu.collectives.ring import all_gather, broadcast, reduce_scatter, ring_all_reduce
from emu.collectives.schedule import Schedule
from emu.collectives.tree import tree_all_reduce
from emu.errors import unknown

ALL_REDUCE: dict[str, Callable[..., Schedule]] = {
    "ring": ring_all_reduce,
    "tree": tree_all_reduce,
    "double_tree": double_tree_all_reduce,
    "nvls": nvls_all_reduce,
    "nvls_tree": nvls_tree_all_reduce,
    "collnet_direct": collnet_direct_all_reduce,
    "collnet_chain": collnet_chain_all_reduce,
}
COLLECTIVES: dict[str, Callable[..., Schedule]] = {
    **ALL_REDUCE,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "send_recv": send_recv,
    "all_to_all": all_to_all,
    "all_to_all_pxn": partial(all_to_all, pxn=True),
    "all_to_all_burst": partial(all_to_all, order="burst"),
    "all_to_all_burst_pxn": partial(all_to_all, order="burst", pxn=True),
}


def schedule(name: str, placement: Placement, size_bytes: int, **options: Any) -> Schedule:
    """The collective of that name; `options` are its generator's. UsageError: no such name, or sizes that don't fit."""
    if name not in COLLECTIVES:
        raise unknown("collective", name, COLLECTIVES)
    return COLLECTIVES[name](placement, size_bytes, **options)
