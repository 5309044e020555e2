"""The cluster that the common parameters describe: Spine-Leaf, or the scale-out topology that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from emu.errors import UsageError
from emu.scenario.choice import Values
from emu.scenario.ecn_profile import queue_profile
from emu.topology.dragonfly import Dragonfly, DragonflyPlus
from emu.topology.fat_tree import FatTree
from emu.topology.model import Topology
from emu.topology.shape import Shape
from emu.topology.spine_leaf import SpineLeaf
from emu.topology.torus import Torus, parse_dims
from emu.units import gbps


def spine_leaf(p: Values, gpus: int | None = None) -> Topology:
    """Of `gpus` GPUs (default: the parameter's) in whole servers. UsageError if they don't fill them."""
    return _spine_leaf(p, p.gpus if gpus is None else gpus, wiring=p.wiring).topology()


def scale_out(p: Values) -> SpineLeaf | Shape:
    """The description of `topology` with `gpus` GPUs, all NICs of a server to one switch. UsageError if they don't fill it."""
    return TOPOLOGIES[p.topology](p)


def _spine_leaf(p: Values, gpus: int, wiring: str) -> SpineLeaf:
    servers = _whole(gpus, p.gpus_per_server, f"servers of gpus_per_server={p.gpus_per_server}")
    return SpineLeaf(servers=servers, wiring=wiring, leaf_down=p.leaf_down, leaf_up=p.leaf_up, **_links(p))


def _fat_tree(p: Values) -> FatTree:
    shape = FatTree(radix=p.radix, edge_up=p.edge_up or None, **_links(p))
    pod_gpus = shape.half * shape.down
    what = f"pods of {pod_gpus} (radix={p.radix}: {shape.half} edges with {shape.down} NICs each)"
    return replace(shape, pods=_whole(p.gpus, pod_gpus, what))


def _torus(p: Values) -> Torus:
    dims = parse_dims(p.dims)
    return Torus(dims=dims, node_gpus=_whole(p.gpus, prod(dims), f"the {prod(dims)} nodes of dims={p.dims} alike"), **_links(p))


def _dragonfly(p: Values) -> Dragonfly:
    return Dragonfly(groups=_groups(p), routers=p.group_switches, router_gpus=p.switch_gpus, global_ports=p.global_ports,
                     **_links(p))


def _dragonfly_plus(p: Values) -> DragonflyPlus:
    return DragonflyPlus(groups=_groups(p), leaves=p.group_switches, leaf_gpus=p.switch_gpus, spines=p.group_switches,
                         global_ports=p.global_ports, **_links(p))


def _groups(p: Values) -> int:
    what = f"groups of group_switches={p.group_switches} with switch_gpus={p.switch_gpus} each"
    return _whole(p.gpus, p.group_switches * p.switch_gpus, what)


def _whole(gpus: int, unit: int, what: str) -> int:
    """How many times; UsageError unless `unit` GPUs go into them evenly."""
    if unit < 1 or gpus % unit:
        raise UsageError(f"gpus={gpus} do not fill {what}; want a multiple of {unit}")
    return gpus // unit


def _links(p: Values) -> dict[str, Any]:
    return {
        "gpus_per_server": p.gpus_per_server, "rate_bps": gbps(p.rate_gbps), "delay_ns": p.delay_ns, "path_mtu_bytes": p.mtu,
        "queue": queue_profile(p),
    }


TOPOLOGIES: dict[str, Callable[[Values], SpineLeaf | Shape]] = {
    "spine_leaf": lambda p: _spine_leaf(p, p.gpus, wiring="single"),
    "fat_tree": _fat_tree,
    "torus": _torus,
    "dragonfly": _dragonfly,
    "dragonfly_plus": _dragonfly_plus,
}
