"""Torus: a node for every point of a grid, each a switch with its servers, joined to both neighbours in every dimension.

    t0_0 === t1_0 === t2_0 === (t0_0)        dims=(3, 2): rings of 3 in dimension 0,
     ||       ||       ||                    of 2, joined by both of their cables, in dimension 1
    t0_1 === t1_1 === t2_1 === (t0_1)

Routes are minimal: all neighbours that are closer to the target, as ECMP. Tori in the field mostly route dimension by dimension,
which with two virtual channels a ring can't deadlock; here it would give up the other minimal ways and any way round a dead
cable, which link-state routing over Ethernet, and so this emulator, has. Under uniform traffic both load all cables of a
ring alike. Nothing here can deadlock, because queues drop and PFC is not modelled: a lossless torus on plain Ethernet would.
Source: Dally, Towles, Principles and Practices of Interconnection Networks (2004), chapters 5, 8 and 14; the bisection from
Aroca, Fernandez Anta, Bisection (Band)Width of Product Networks with Application to Data Centers, TAMC 2012 (both from memory);
domain facts 10.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from emu.errors import TopologyError
from emu.topology.figures import Figures
from emu.topology.model import Link, Port, Switch, Topology
from emu.topology.naming import ifname, torus_name
from emu.topology.shape import Shape


def parse_dims(text: str) -> tuple[int, ...]:
    """"4x8" -> (4, 8); TopologyError for anything else."""
    lengths = text.split("x")
    if not all(length.isascii() and length.isdigit() for length in lengths):
        raise TopologyError(f"dims={text!r}; want the length of each dimension, such as 4x8 or 4x4x2")
    return tuple(map(int, lengths))


@dataclass(frozen=True, kw_only=True)
class Torus(Shape):
    """`dims`: length of the rings in each dimension; `node_gpus`: NICs at each node. TopologyError says what would fit."""

    dims: tuple[int, ...]
    node_gpus: int

    def __post_init__(self) -> None:
        self.need_at_least(gpus_per_server=1, node_gpus=1)
        if not self.dims or min(self.dims) < 2:
            raise TopologyError(f"dims={'x'.join(map(str, self.dims))}; want at least one ring, and 2 nodes or more in each")
        self.need_whole_servers(f"node_gpus={self.node_gpus}", self.node_gpus)

    @property
    def figures(self) -> Figures:
        nodes = prod(self.dims)
        gpus = nodes * self.node_gpus
        apart = sum(Fraction(length**2 // 4, length) for length in self.dims)  # mean over all pairs, a node with itself too
        crossing = Fraction(self.bisection_cables, nodes // 2 * self.node_gpus)
        return Figures(
            gpus=gpus, switches=nodes, cables=nodes * len(self.dims), diameter=sum(length // 2 for length in self.dims),
            mean_hops=apart * gpus / (gpus - 1), bisection_share=min(Fraction(1), crossing),
        )

    @property
    def bisection_cables(self) -> int:
        """Two a ring, of the longest even dimension: 2N/k. Odd ones before it leave a middle layer, which is cut likewise."""
        cables, layer = 0, prod(self.dims)
        for length in sorted(self.dims, reverse=True):
            layer //= length
            cables += 2 * layer
            if length % 2 == 0:
                break
        return cables

    def topology(self) -> Topology:
        """Nodes with the last dimension counting fastest; cables by node, then dimension."""
        points = list(itertools.product(*map(range, self.dims)))
        names = [torus_name(point) for point in points]
        radix = 2 * len(self.dims) + self.node_gpus
        return self.built(
            "torus", [Switch(name=name, role="node", radix=radix) for name in names], dict.fromkeys(names, self.node_gpus),
            (cable for point in points for cable in self._cables(point)),
        )

    def _cables(self, point: tuple[int, ...]) -> Iterator[Link]:
        for dimension, length in enumerate(self.dims):
            following = (*point[:dimension], (point[dimension] + 1) % length, *point[dimension + 1:])
            plus, minus = ifname("plus", dimension), ifname("minus", dimension)
            yield self.link(Port(torus_name(point), plus), Port(torus_name(following), minus))
