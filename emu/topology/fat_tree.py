"""Fat tree of three tiers: pods of edge and aggregation switches, joined by core switches; all boxes of one radix k.

    core     edge_up*k/2 switches, number u*k/2+c joined to aggregation switch u of every pod
    agg      edge_up in a pod, k/2 down to the pod's edges, k/2 up to cores
    edge     k/2 in a pod, k-edge_up down to NICs, edge_up up, one to each aggregation switch of the pod

With edge_up = k/2 it is non-blocking and k pods hold k^3/4 NICs; with less, edges are oversubscribed and the tiers above
are not. Fewer than k pods leave ports free at the cores, for pods to come. Routes: ECMP up over edge_up*k/2 paths between
pods, one way down. A pod's edges are one route where k/2 is a power of two, else a few.
Source: Al-Fares, Loukissas, Vahdat, A Scalable, Commodity Data Center Network Architecture, SIGCOMM 2008, section 3.1 (which
splits traffic by two-level lookup tables, here hashing does); domain facts 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from emu.errors import TopologyError
from emu.topology.figures import Figures, longest_of, mean_of
from emu.topology.model import Link, Port, Switch, Topology
from emu.topology.naming import ifname, switch_name
from emu.topology.shape import Shape


@dataclass(frozen=True, kw_only=True)
class FatTree(Shape):
    """`radix` is k; pods=None means k of them, edge_up=None k/2. TopologyError names what doesn't fit and what would."""

    radix: int
    pods: int | None = None
    edge_up: int | None = None

    def __post_init__(self) -> None:
        self.need_at_least(gpus_per_server=1)
        if self.radix < 2 or self.radix % 2:
            raise TopologyError(f"radix={self.radix}; want an even number of ports, half up and half down: "
                                f"{max(2, self.radix // 2 * 2)} would fit")
        if not 2 <= self.pod_count <= self.radix:
            raise TopologyError(f"pods={self.pod_count}; want 2 to radix={self.radix}, as a core has one port for each")
        if not 1 <= self.up < self.radix:
            raise TopologyError(f"edge_up={self.up}; want 1 to {self.radix - 1} of an edge's {self.radix} ports")
        self.need_whole_servers(f"edge_up={self.up} of radix={self.radix}", self.down)

    @property
    def half(self) -> int:
        """Edges of a pod, and ports of an aggregation switch each way."""
        return self.radix // 2

    @property
    def pod_count(self) -> int:
        return self.radix if self.pods is None else self.pods

    @property
    def up(self) -> int:
        """Uplinks of an edge, and aggregation switches of a pod."""
        return self.half if self.edge_up is None else self.edge_up

    @property
    def down(self) -> int:
        """NICs of an edge."""
        return self.radix - self.up

    @property
    def oversubscription(self) -> Fraction:
        """Bandwidth down over bandwidth up of an edge."""
        return Fraction(self.down, self.up)

    @property
    def figures(self) -> Figures:
        pods, edges, cores = self.pod_count, self.pod_count * self.half, self.up * self.half
        gpus, pod_gpus = edges * self.down, self.half * self.down
        pairs = {0: gpus * (self.down - 1), 2: gpus * (pod_gpus - self.down), 4: gpus * (gpus - pod_gpus)}
        return Figures(
            gpus=gpus, switches=edges + pods * self.up + cores, cables=edges * self.up + pods * cores,
            diameter=longest_of(pairs), mean_hops=mean_of(pairs),
            bisection_share=min(Fraction(1), 1 / self.oversubscription),
        )

    def topology(self) -> Topology:
        """Switches in the order edges, aggregation, cores; cables in the order edge to aggregation, aggregation to core."""
        edges = [self._edge(pod, edge) for pod in range(self.pod_count) for edge in range(self.half)]
        aggs = [self._agg(pod, agg) for pod in range(self.pod_count) for agg in range(self.up)]
        cores = [switch_name(core=core) for core in range(self.up * self.half)]
        tiers = (("edge", edges), ("agg", aggs), ("core", cores))
        return self.built(
            "fat_tree",
            [Switch(name=name, role=role, radix=self.radix) for role, names in tiers for name in names],
            dict.fromkeys(edges, self.down),
            [*self._edge_cables(), *self._core_cables()],
        )

    def _edge_cables(self) -> Iterator[Link]:
        for pod in range(self.pod_count):
            for edge in range(self.half):
                for agg in range(self.up):
                    a, b = Port(self._edge(pod, edge), ifname("up", agg)), Port(self._agg(pod, agg), ifname("down", edge))
                    yield self.link(a, b)

    def _core_cables(self) -> Iterator[Link]:
        for pod in range(self.pod_count):
            for agg in range(self.up):
                for up in range(self.half):
                    core = switch_name(core=agg * self.half + up)
                    yield self.link(Port(self._agg(pod, agg), ifname("up", up)), Port(core, ifname("down", pod)))

    def _edge(self, pod: int, edge: int) -> str:
        return switch_name(p=pod, edge=edge)

    def _agg(self, pod: int, agg: int) -> str:
        return switch_name(p=pod, agg=agg)
