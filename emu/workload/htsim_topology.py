"""htsim's topology files: a fat tree given tier by tier; one of two tiers is a spine-leaf of ours.

    Nodes 32                        Tier 0 is the leaf, tier 1 the spine. Speed and latency belong to the link that goes
    Tiers 2                         down from the tier; Radix_Up and Radix_Down count its ports, Bundle the parallel links
    Podsize 32                      between two switches; Oversubscribed is bandwidth down over bandwidth up.

A node becomes a server with one GPU and one NIC. Refused, because it is no spine-leaf or would be left out unseen: three
tiers, several pods, bundles to nodes, a switch latency above 0 (our switches add none).
Queue_Up and Queue_Down (bytes), where given, are the buffer of every port and have to be equal.
Source: Broadcom/csg-htsim sim/datacenter/fat_tree_topology.cpp (load, set_custom_params).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from emu.errors import TopologyError, UsageError
from emu.topology.model import Link, Topology
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps
from emu.workload.text import Line, read_lines, shown

WHAT = "an htsim topology file (Nodes, Tiers, Podsize, then Tier 0, Tier 1 with their keys)"
HEADER = ("nodes", "tiers", "podsize")
KEYS = (
    "downlink_speed_gbps", "downlink_latency_ns", "radix_down", "radix_up", "oversubscribed", "bundle", "switch_latency_ns",
    "queue_up", "queue_down",
)
MAY_BE_ZERO = ("downlink_latency_ns", "switch_latency_ns")
DEFAULTS = {"oversubscribed": 1, "bundle": 1, "switch_latency_ns": 0}
LEAF, SPINE = 0, 1
MOST_LINKS = 1 << 18  # a slip of the hand, not a cluster: a machine has been measured to hold 16,384


@dataclass(frozen=True)
class _Section:
    """The header, or a tier: values by key, each with its line."""

    name: str
    where: str
    values: dict[str, tuple[int, Line]] = field(default_factory=dict)

    def put(self, line: Line, key: str) -> None:
        if len(line.words) != 2:
            raise line.refused(f"{line.words[0]} has {len(line.words) - 1} values; want one")
        if key in self.values:
            raise line.refused(f"{line.words[0]} for the second time in {self.name}; want it once")
        self.values[key] = line.whole(line.words[0], line.words[1], at_least=0 if key in MAY_BE_ZERO else 1), line

    def get(self, key: str) -> int:
        if key in self.values:
            return self.values[key][0]
        if key in DEFAULTS:
            return DEFAULTS[key]
        raise UsageError(f"{self.where}: {self.name} lacks {key}; want a line `{key.capitalize()} <number>`")

    def refused(self, key: str, wrong: str) -> UsageError:
        return UsageError(f"{self.values[key][1].where if key in self.values else self.where}: {wrong}")


def read_topology(path: str, queue: QueueProfile, path_mtu_bytes: int = 4096) -> Topology:
    """The file's cluster as a spine-leaf. `queue`: its marking law, and its buffer where the file gives none.

    UsageError with file and line: what htsim refuses, what is no spine-leaf.
    """
    header, tiers = _sections(path)
    for key in HEADER:
        header.get(key)
    _check_tiers(path, header, tiers)
    leaf, spine = tiers[LEAF], tiers[SPINE]
    _check_leaf(header, leaf, spine)
    _check_spine(header, leaf, spine)
    queue = _with_buffer(queue, leaf, spine)
    try:
        return _with_uplinks(_shape(header, leaf, spine, queue, path_mtu_bytes).topology(), spine)
    except TopologyError as error:
        raise UsageError(f"{path}: {error}") from None


def _sections(path: str) -> tuple[_Section, dict[int, _Section]]:
    header = current = _Section("the header", path)
    tiers: dict[int, _Section] = {}
    for line in read_lines(path, WHAT, comment="#"):
        key = line.words[0].lower()
        if key == "tier":
            current = _next_tier(line, tiers)
        elif key in (HEADER if current is header else KEYS):
            current.put(line, key)
        else:
            names = ", ".join(HEADER if current is header else KEYS)
            raise line.refused(f"unknown key {shown(line.words[0])} in {current.name}; want {names}, or Tier")
    return header, tiers


def _next_tier(line: Line, tiers: dict[int, _Section]) -> _Section:
    number = line.whole("Tier", line.words[1] if len(line.words) == 2 else "")
    if number in tiers or number > 2:
        raise line.refused(f"Tier {number} {'for the second time' if number in tiers else 'is none'}; want 0, 1 and 2 once each")
    tiers[number] = _Section(f"tier {number}", line.where)
    return tiers[number]


def _check_tiers(path: str, header: _Section, tiers: dict[int, _Section]) -> None:
    if header.get("tiers") != 2:
        raise header.refused("tiers", f"Tiers {header.get('tiers')} is no spine-leaf; want a file with 2")
    if sorted(tiers) != [LEAF, SPINE]:
        raise UsageError(f"{path}: Tiers 2 but there are {len(tiers)} sections; want Tier 0 and Tier 1")
    if header.get("podsize") != header.get("nodes"):
        raise header.refused("podsize", f"Podsize {header.get('podsize')} with Nodes {header.get('nodes')}: two tiers are one "
                             f"pod; want Podsize {header.get('nodes')}")
    for tier in tiers.values():
        if tier.get("switch_latency_ns"):
            raise tier.refused("switch_latency_ns", "our switches add no latency; want Switch_Latency_ns 0 and longer links")


def _check_leaf(header: _Section, leaf: _Section, spine: _Section) -> None:
    down, up, nodes = leaf.get("radix_down"), leaf.get("radix_up"), header.get("nodes")
    if leaf.get("bundle") != 1:
        raise leaf.refused("bundle", f"Bundle {leaf.get('bundle')} at the leaf: a node has one NIC; want 1")
    if nodes + nodes // down * up > MOST_LINKS:
        raise header.refused("nodes", f"Nodes {nodes} need {nodes + nodes // down * up} links; want at most {MOST_LINKS}")
    if nodes % down:
        raise leaf.refused("radix_down", f"Radix_Down {down} does not divide Nodes {nodes}; want leaves that are all full")
    want = leaf.get("oversubscribed") * up * spine.get("downlink_speed_gbps")
    if down * leaf.get("downlink_speed_gbps") != want:
        raise leaf.refused(
            "oversubscribed",
            f"Oversubscribed {leaf.get('oversubscribed')} but {down} x {leaf.get('downlink_speed_gbps')} Gb/s down and "
            f"{up} x {spine.get('downlink_speed_gbps')} Gb/s up; want down = Oversubscribed x up",
        )


def _check_spine(header: _Section, leaf: _Section, spine: _Section) -> None:
    bundle, up, leaves = spine.get("bundle"), leaf.get("radix_up"), header.get("nodes") // leaf.get("radix_down")
    if "radix_up" in spine.values:
        raise spine.refused("radix_up", "Radix_Up in tier 1, which is the top; want no such line")
    if up % bundle:
        raise spine.refused("bundle", f"Bundle {bundle} does not divide the leaf's Radix_Up {up}; want a divisor")
    if spine.get("radix_down") != leaves * bundle:
        raise spine.refused(
            "radix_down",
            f"Radix_Down {spine.get('radix_down')} but {leaves} leaves with {bundle} links each; want {leaves * bundle}",
        )


def _with_buffer(queue: QueueProfile, *tiers: _Section) -> QueueProfile:
    given = [(tier, key) for tier in tiers for key in ("queue_up", "queue_down") if key in tier.values]
    for tier, key in given:
        try:
            changed = replace(queue, buffer_bytes=tier.get(key))
        except UsageError as error:
            raise tier.refused(key, str(error)) from None
        if tier.get(key) != given[0][0].get(given[0][1]):
            raise tier.refused(key, "ports with different queues; want the same number in every Queue_ line")
    return changed if given else queue


def _shape(header: _Section, leaf: _Section, spine: _Section, queue: QueueProfile, path_mtu_bytes: int) -> SpineLeaf:
    down, up = leaf.get("radix_down"), leaf.get("radix_up")
    return SpineLeaf(
        servers=header.get("nodes"), gpus_per_server=1, wiring="single", leaf_down=down, leaf_up=up,
        spines=up // spine.get("bundle"), rate_bps=gbps(leaf.get("downlink_speed_gbps")),
        delay_ns=leaf.get("downlink_latency_ns"), queue=queue, path_mtu_bytes=path_mtu_bytes,
        radix=max(down + up, spine.get("radix_down")),
    )


def _with_uplinks(topology: Topology, spine: _Section) -> Topology:
    rate_bps, delay_ns = gbps(spine.get("downlink_speed_gbps")), spine.get("downlink_latency_ns")
    spines = {switch.name for switch in topology.switches_of("spine")}

    def changed() -> Iterator[Link]:
        for link in topology.links:
            yield replace(link, rate_bps=rate_bps, delay_ns=delay_ns) if link.b.node in spines else link

    return replace(topology, links=tuple(changed()))
