"""Spine-Leaf for GPU clusters: rail-optimized or single-rail wiring of the servers' NICs, leaves, spines.

    wiring=rail    NIC k of every server of a group goes to leaf k of that group (leaf_down servers a group)
    wiring=single  all NICs of a server go to one leaf (leaf_down/gpus_per_server servers a leaf)

Every leaf has `leaf_up` uplinks spread evenly over the spines. 1:1 (leaf_up = leaf_down) is non-blocking.
Source: the reference article's section on attaching a server's NICs; docs/design.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from emu.errors import TopologyError, unknown
from emu.topology.figures import Figures, longest_of, mean_of
from emu.topology.model import Link, Port, Server, Switch, Topology, nic
from emu.topology.naming import ifname
from emu.topology.queue_profile import QueueProfile

WIRINGS = ("rail", "single")


@dataclass(frozen=True, kw_only=True)
class SpineLeaf:
    """The description; `topology()` makes the nodes and links. Rates in bit/s, delays in ns, one way.

    spines=None means one spine per uplink. TopologyError names what doesn't fit and what would.
    """

    servers: int
    gpus_per_server: int
    wiring: str
    leaf_down: int
    leaf_up: int
    rate_bps: int
    queue: QueueProfile
    spines: int | None = None
    delay_ns: int = 0
    path_mtu_bytes: int = 4096
    radix: int = 128

    def __post_init__(self) -> None:
        for field in ("servers", "gpus_per_server", "leaf_down"):
            if getattr(self, field) < 1:
                raise TopologyError(f"{field}={getattr(self, field)}; want at least 1")
        if self.wiring not in WIRINGS:
            raise unknown("wiring", self.wiring, WIRINGS)
        _check_down(self)
        _check_up(self)

    @property
    def oversubscription(self) -> Fraction | None:
        """Bandwidth down over bandwidth up of a leaf; None where leaves have no uplink."""
        return Fraction(self.leaf_down, self.leaf_up) if self.leaf_up else None

    @property
    def servers_per_group(self) -> int:
        """Servers that share a set of leaves."""
        return self.leaf_down if self.wiring == "rail" else self.leaf_down // self.gpus_per_server

    @property
    def leaves_per_group(self) -> int:
        return self.gpus_per_server if self.wiring == "rail" else 1

    @property
    def leaves(self) -> int:
        return -(-self.servers // self.servers_per_group) * self.leaves_per_group

    @property
    def spine_count(self) -> int:
        return self.leaf_up if self.spines is None else self.spines

    @property
    def figures(self) -> Figures:
        sizes = [len(links) for links in self.topology().access_links.values()]
        gpus = sum(sizes)
        pairs = {0: sum(size * (size - 1) for size in sizes), 2: sum(size * (gpus - size) for size in sizes)}
        return Figures(
            gpus=gpus, switches=self.leaves + self.spine_count, cables=self.leaves * self.leaf_up,
            diameter=longest_of(pairs), mean_hops=mean_of(pairs),
            bisection_share=min(Fraction(1), Fraction(self.leaf_up, self.leaf_down)),
        )

    def topology(self) -> Topology:
        """Nodes in the order servers, leaves, spines; links in the order NICs, uplinks."""
        return Topology(
            name=f"spine_leaf_{self.wiring}",
            servers=tuple(Server(name=f"srv{i}", gpus=self.gpus_per_server) for i in range(self.servers)),
            switches=tuple(
                [Switch(name=f"leaf{i}", role="leaf", radix=self.radix) for i in range(self.leaves)]
                + [Switch(name=f"spine{i}", role="spine", radix=self.radix) for i in range(self.spine_count)]
            ),
            links=tuple([*_nic_links(self), *_uplinks(self)]),
            queue=self.queue,
            path_mtu_bytes=self.path_mtu_bytes,
        )


def _check_down(shape: SpineLeaf) -> None:
    if shape.wiring == "single" and shape.leaf_down % shape.gpus_per_server:
        raise TopologyError(
            f"leaf_down={shape.leaf_down} is no multiple of gpus_per_server={shape.gpus_per_server}: with wiring=single "
            f"a server's NICs all go to one leaf; {_nearest_multiple(shape.leaf_down, shape.gpus_per_server)} would fit"
        )
    if shape.leaf_down + shape.leaf_up > shape.radix:
        raise TopologyError(
            f"leaf_down={shape.leaf_down} + leaf_up={shape.leaf_up} needs {shape.leaf_down + shape.leaf_up} ports but a "
            f"leaf has {shape.radix}; {shape.radix // 2} down and {shape.radix // 2} up would fit"
        )


def _check_up(shape: SpineLeaf) -> None:
    if shape.leaf_up < 0:
        raise TopologyError(f"leaf_up={shape.leaf_up}; want 0 (a fabric of one leaf) or more")
    if shape.spines and not shape.leaf_up:
        raise TopologyError(f"spines={shape.spines} but leaf_up=0: no leaf has a link to them; want leaf_up or no spines")
    if shape.leaves > 1 and not shape.leaf_up:
        raise TopologyError(f"leaf_up=0 leaves the {shape.leaves} leaves unconnected; want at least 1")
    if shape.leaf_up and (shape.spine_count < 1 or shape.leaf_up % shape.spine_count):
        fits = [s for s in range(1, shape.leaf_up + 1) if shape.leaf_up % s == 0]
        raise TopologyError(
            f"spines={shape.spine_count} does not divide leaf_up={shape.leaf_up} evenly; "
            f"{', '.join(map(str, fits))} would fit"
        )
    if shape.leaf_up and shape.leaves * (shape.leaf_up // shape.spine_count) > shape.radix:
        raise TopologyError(
            f"{shape.leaves} leaves with {shape.leaf_up // shape.spine_count} links to each spine need "
            f"{shape.leaves * shape.leaf_up // shape.spine_count} spine ports but a spine has {shape.radix}; "
            "use more spines, fewer leaves or a bigger radix"
        )


def _nearest_multiple(value: int, unit: int) -> int:
    return max(unit, value // unit * unit)


def _nic_links(shape: SpineLeaf) -> Iterator[Link]:
    for server in range(shape.servers):
        group, place = divmod(server, shape.servers_per_group)
        for gpu in range(shape.gpus_per_server):
            leaf, down = (group * shape.gpus_per_server + gpu, place)
            if shape.wiring == "single":
                leaf, down = (group, place * shape.gpus_per_server + gpu)
            yield _link(shape, nic(server, gpu), Port(f"leaf{leaf}", ifname("down", down)))


def _uplinks(shape: SpineLeaf) -> Iterator[Link]:
    for leaf in range(shape.leaves):
        for up in range(shape.leaf_up):
            round_, spine = divmod(up, shape.spine_count)
            down = leaf + round_ * shape.leaves
            yield _link(shape, Port(f"leaf{leaf}", ifname("up", up)), Port(f"spine{spine}", ifname("down", down)))


def _link(shape: SpineLeaf, a: Port, b: Port) -> Link:
    return Link(a=a, b=b, rate_bps=shape.rate_bps, delay_ns=shape.delay_ns)
