"""Dragonfly: groups of routers, all of a group joined to each other, and cables between any two groups.

    dragonfly    a routers a group, each with p NICs, a-1 local and h global ports (balanced: a = 2p = 2h)
    dragonfly+   a group is a two-tier fabric: l leaves with p NICs each, every one joined to s spines with h global ports each

Routes are minimal: at most one global cable, so local-global-local, or leaf-spine-spine-leaf; parallel cables between two
groups are ECMP. In a dragonfly two global cables through a third group can be as short in hops: a global cable costs 3 and
a local one 1, so no least-cost path has two. Minimal routing is what makes it weak when a whole group sends to one other;
detours (Valiant, UGAL), which need to look at queues, and the virtual channels that keep lossless ones from deadlock are not
modelled: queues here drop, and there is no PFC.
Source: Kim, Dally, Scott, Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008; Shpiner, Haramaty, Eliad,
Zdornov, Gafni, Zahavi, Dragonfly+: Low Cost Topology for Scaling Datacenters, HiPINEB 2017 (both from memory); domain facts 10.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from emu.errors import TopologyError
from emu.topology.figures import Figures, longest_of, mean_of
from emu.topology.groups import Place, cables_a_pair, global_cables
from emu.topology.model import Link, Port, Switch, Topology
from emu.topology.naming import ifname, switch_name
from emu.topology.shape import Shape

GLOBAL_COST = 3  # more than local + local: local-global-local is cheaper than two global ones


@dataclass(frozen=True, kw_only=True)
class Dragonfly(Shape):
    """groups g of a=`routers`, each with p=`router_gpus` NICs and h=`global_ports`; g from h+1 to a*h+1.

    TopologyError names what doesn't fit and what would.
    """

    groups: int
    routers: int
    router_gpus: int
    global_ports: int

    def __post_init__(self) -> None:
        self.need_at_least(gpus_per_server=1, groups=2, routers=1, router_gpus=1, global_ports=1)
        if self.groups <= self.global_ports:
            raise TopologyError(f"groups={self.groups} with global_ports={self.global_ports}: a router has more of these than "
                                f"there are other groups; want at least {self.global_ports + 1} groups")
        cables_a_pair(self.groups, self.routers * self.global_ports)
        self.need_whole_servers(f"router_gpus={self.router_gpus}", self.router_gpus)

    @property
    def parallel(self) -> int:
        """Cables between two groups; all end at different routers."""
        return cables_a_pair(self.groups, self.routers * self.global_ports)

    @property
    def figures(self) -> Figures:
        """A router without a cable to the target's group takes a local one first, one without from the source's group last."""
        groups, a, p, m = self.groups, self.routers, self.router_gpus, self.parallel
        inside, across = groups * a * p, groups * (groups - 1) * p * p
        pairs = {
            0: inside * (p - 1), 1: inside * (a - 1) * p + across * m,
            2: across * (m * (a - 1) + (a - m) * m), 3: across * (a - m) ** 2,
        }
        return Figures(
            gpus=inside, switches=groups * a, cables=groups * a * (a - 1) // 2 + groups * (groups - 1) // 2 * m,
            diameter=longest_of(pairs), mean_hops=mean_of(pairs), bisection_share=_share_of_halves(groups, m, a * p),
        )

    def topology(self) -> Topology:
        """Routers by group; cables in the order local, global."""
        names = [self._router(group, router) for group in range(self.groups) for router in range(self.routers)]
        radix = self.router_gpus + self.routers - 1 + self.global_ports
        switches = [Switch(name=name, role="router", radix=radix) for name in names]
        return self.built("dragonfly", switches, dict.fromkeys(names, self.router_gpus), [*self._local(), *self._global()])

    def _local(self) -> Iterator[Link]:
        for group in range(self.groups):
            for one, other in itertools.combinations(range(self.routers), 2):
                a, b = self._router(group, one), self._router(group, other)
                yield self.link(Port(a, ifname("local", other)), Port(b, ifname("local", one)))

    def _global(self) -> Iterator[Link]:
        for one, other in global_cables(self.groups, self.routers * self.global_ports):
            yield self.link(self._global_port(one), self._global_port(other), GLOBAL_COST)

    def _global_port(self, place: Place) -> Port:
        router, port = divmod(place[1], self.global_ports)
        return Port(self._router(place[0], router), ifname("global", port))

    def _router(self, group: int, router: int) -> str:
        return switch_name(g=group, r=router)


@dataclass(frozen=True, kw_only=True)
class DragonflyPlus(Shape):
    """groups g of `leaves`, each with `leaf_gpus` NICs, and s=`spines`, each with h=`global_ports`; g from 2 to s*h+1."""

    groups: int
    leaves: int
    leaf_gpus: int
    spines: int
    global_ports: int

    def __post_init__(self) -> None:
        self.need_at_least(gpus_per_server=1, groups=2, leaves=1, leaf_gpus=1, spines=1, global_ports=1)
        cables_a_pair(self.groups, self.spines * self.global_ports)
        self.need_whole_servers(f"leaf_gpus={self.leaf_gpus}", self.leaf_gpus)

    @property
    def parallel(self) -> int:
        """Cables between two groups."""
        return cables_a_pair(self.groups, self.spines * self.global_ports)

    @property
    def figures(self) -> Figures:
        gpus, group_gpus = self.groups * self.leaves * self.leaf_gpus, self.leaves * self.leaf_gpus
        pairs = {0: gpus * (self.leaf_gpus - 1), 2: gpus * (group_gpus - self.leaf_gpus), 3: gpus * (gpus - group_gpus)}
        return Figures(
            gpus=gpus, switches=self.groups * (self.leaves + self.spines),
            cables=self.groups * self.leaves * self.spines + self.groups * (self.groups - 1) // 2 * self.parallel,
            diameter=longest_of(pairs), mean_hops=mean_of(pairs),
            bisection_share=_share_of_halves(self.groups, self.parallel, group_gpus),
        )

    def topology(self) -> Topology:
        """Switches in the order leaves, spines; cables in the order leaf to spine, global."""
        leaves = [self._leaf(group, leaf) for group in range(self.groups) for leaf in range(self.leaves)]
        spines = [self._spine(group, spine) for group in range(self.groups) for spine in range(self.spines)]
        switches = [Switch(name=name, role="leaf", radix=self.leaf_gpus + self.spines) for name in leaves]
        switches += [Switch(name=name, role="spine", radix=self.leaves + self.global_ports) for name in spines]
        return self.built("dragonfly_plus", switches, dict.fromkeys(leaves, self.leaf_gpus), [*self._local(), *self._global()])

    def _local(self) -> Iterator[Link]:
        for group in range(self.groups):
            for leaf, spine in itertools.product(range(self.leaves), range(self.spines)):
                a, b = self._leaf(group, leaf), self._spine(group, spine)
                yield self.link(Port(a, ifname("up", spine)), Port(b, ifname("down", leaf)))

    def _global(self) -> Iterator[Link]:
        for one, other in global_cables(self.groups, self.spines * self.global_ports):
            yield self.link(self._global_port(one), self._global_port(other))

    def _global_port(self, place: Place) -> Port:
        spine, port = divmod(place[1], self.global_ports)
        return Port(self._spine(place[0], spine), ifname("global", port))

    def _leaf(self, group: int, leaf: int) -> str:
        return switch_name(g=group, l=leaf)

    def _spine(self, group: int, spine: int) -> str:
        return switch_name(g=group, s=spine)


def _share_of_halves(groups: int, parallel: int, group_gpus: int) -> Fraction:
    """Of halves of whole groups, floor(g/2) and the rest: every group of one has its cables to each group of the other."""
    half = groups // 2
    return min(Fraction(1), Fraction(half * (groups - half) * parallel, half * group_gpus))
