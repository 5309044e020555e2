"""Promises about fat trees, tori and dragonflies: closed forms are those of the built graph, routes are its shortest paths.

networkx finds distances and cuts by itself; our routing and our formulas are held against it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from random import Random

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import TopologyError
from emu.topology.dragonfly import Dragonfly, DragonflyPlus
from emu.topology.even_split import EvenSplit
from emu.topology.fat_tree import FatTree
from emu.topology.mininet_topo import ClusterTopo, topos
from emu.topology.model import Link, Port, Topology
from emu.topology.plan import Plan, Route, access_prefixes, make_plan, routes_without, via_of
from emu.topology.queue_profile import QueueProfile
from emu.topology.shape import Shape
from emu.topology.spine_leaf import SpineLeaf
from emu.topology.torus import Torus
from emu.units import gbps, mib

COMMON = {"rate_bps": gbps(400), "queue": QueueProfile(buffer_bytes=mib(16))}
FEW = settings(max_examples=25, deadline=None)


def fat_tree(**description) -> FatTree:
    return FatTree(**COMMON | {"gpus_per_server": 1} | description)


def torus(*dims: int, **description) -> Torus:
    return Torus(**COMMON | {"gpus_per_server": 1, "node_gpus": 1, "dims": dims} | description)


def dragonfly(groups: int, routers: int, router_gpus: int, global_ports: int, **description) -> Dragonfly:
    return Dragonfly(**COMMON | {"gpus_per_server": 1} | description, groups=groups, routers=routers, router_gpus=router_gpus,
                     global_ports=global_ports)


def dragonfly_plus(groups: int, leaves: int, leaf_gpus: int, spines: int, global_ports: int, **description) -> DragonflyPlus:
    return DragonflyPlus(**COMMON | {"gpus_per_server": 1} | description, groups=groups, leaves=leaves, leaf_gpus=leaf_gpus,
                         spines=spines, global_ports=global_ports)


SHAPES = {
    "fat tree k=4": lambda: fat_tree(radix=4),
    "fat tree k=6": lambda: fat_tree(radix=6, gpus_per_server=3),
    "fat tree k=6, 2:1": lambda: fat_tree(radix=6, edge_up=2, gpus_per_server=2),
    "fat tree k=8, 3 pods, 3:1": lambda: fat_tree(radix=8, pods=3, edge_up=2, gpus_per_server=2),
    "fat tree k=4, more up than down": lambda: fat_tree(radix=4, edge_up=3),
    "torus 4x4": lambda: torus(4, 4, node_gpus=2, gpus_per_server=2),
    "torus 3x3": lambda: torus(3, 3),
    "torus 2x3": lambda: torus(2, 3),
    "torus 5x4": lambda: torus(5, 4, node_gpus=3),
    "torus 2x2x2": lambda: torus(2, 2, 2),
    "torus 4x3x2": lambda: torus(4, 3, 2),
    "torus 3x2x2x2": lambda: torus(3, 2, 2, 2),
    "ring of 7": lambda: torus(7),
    "dragonfly, balanced, 72 hosts": lambda: dragonfly(9, 4, 2, 2),
    "dragonfly, 8 of 9 groups": lambda: dragonfly(8, 4, 2, 2, gpus_per_server=2),
    "dragonfly, 2 cables a pair": lambda: dragonfly(5, 4, 2, 2),
    "dragonfly, 3 cables a pair and 1 port left": lambda: dragonfly(4, 5, 1, 2),
    "dragonfly, as many cables as routers": lambda: dragonfly(3, 4, 3, 2),
    "dragonfly of single routers": lambda: dragonfly(4, 1, 2, 3),
    "dragonfly+": lambda: dragonfly_plus(8, 4, 2, 4, 2, gpus_per_server=2),
    "dragonfly+, 5 cables a pair": lambda: dragonfly_plus(4, 4, 4, 4, 4),
    "dragonfly+, odd": lambda: dragonfly_plus(5, 2, 3, 3, 2),
    "spine-leaf": lambda: SpineLeaf(**COMMON, servers=6, gpus_per_server=2, wiring="single", leaf_down=4, leaf_up=2),
    "spine-leaf, leaf half full": lambda: SpineLeaf(
        **COMMON, servers=5, gpus_per_server=2, wiring="rail", leaf_down=4, leaf_up=4, spines=2),
}


def some_fat_trees() -> st.SearchStrategy[Shape]:
    return st.integers(1, 3).flatmap(lambda half: st.builds(
        fat_tree, radix=st.just(2 * half), pods=st.integers(2, 2 * half), edge_up=st.integers(1, 2 * half - 1)))


def some_tori() -> st.SearchStrategy[Shape]:
    dims = st.lists(st.integers(2, 5), min_size=1, max_size=3).filter(lambda dims: prod(dims) <= 40)
    return dims.map(lambda dims: torus(*dims))


@st.composite
def some_dragonflies(draw) -> Shape:
    routers, ports = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    groups = draw(st.integers(max(2, ports + 1), max(2, min(9, routers * ports + 1))))
    return dragonfly(groups, routers, draw(st.integers(1, 2)), ports)


@st.composite
def some_dragonflies_plus(draw) -> Shape:
    spines, ports = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    groups = draw(st.integers(2, min(6, spines * ports + 1)))
    return dragonfly_plus(groups, draw(st.integers(1, 3)), draw(st.integers(1, 2)), spines, ports)


def shapes() -> st.SearchStrategy[Shape]:
    """Small ones of every kind."""
    return st.one_of(some_fat_trees(), some_tori(), some_dragonflies(), some_dragonflies_plus())


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request) -> Shape:
    return request.param()


def between(topology: Topology) -> list[Link]:
    """Cables between switches."""
    return [link for link in topology.links if not link.a.node.startswith("srv")]


def graph_of(topology: Topology) -> networkx.Graph:
    """Of the switches. Parallel cables add up in `cables`."""
    graph = networkx.Graph()
    graph.add_nodes_from(switch.name for switch in topology.switches)
    for link in between(topology):
        cables = graph.get_edge_data(link.a.node, link.b.node, {"cables": 0})["cables"] + 1
        graph.add_edge(link.a.node, link.b.node, cost=link.cost, cables=cables)
    return graph


def hops_between(topology: Topology) -> Iterator[tuple[int, int]]:
    """(cables between switches on a path of least cost, ordered pairs of NICs) for every ordered pair of access switches."""
    graph, under = graph_of(topology), {name: len(links) for name, links in topology.access_links.items()}
    found = {source: networkx.single_source_dijkstra_path(graph, source, weight="cost") for source in under}
    for source, target in itertools.product(under, repeat=2):
        yield len(found[source][target]) - 1, under[source] * (under[target] - (source == target))


def carried(topology: Topology, half: frozenset[str]) -> int:
    """Cables between the NICs under the access switches in `half` and all others: a minimum cut."""
    graph = networkx.DiGraph()
    for a, b, cables in graph_of(topology).edges(data="cables"):
        graph.add_edge(a, b, capacity=cables)
        graph.add_edge(b, a, capacity=cables)
    for switch in topology.access_links:
        graph.add_edge(*(("one", switch) if switch in half else (switch, "other")))  # without capacity: any
    return networkx.minimum_cut_value(graph, "one", "other")


def share_carried(topology: Topology, half: frozenset[str]) -> Fraction:
    """Of what the NICs of the smaller side send at line rate; never more than 1."""
    under = {name: len(links) for name, links in topology.access_links.items()}
    inside = sum(under[name] for name in half)
    return min(Fraction(1), Fraction(carried(topology, half), min(inside, sum(under.values()) - inside)))


def test_counts_distances_and_their_mean_are_those_of_the_built_graph(shape):
    built, figures = shape.topology(), shape.figures
    hops = Counter()
    for length, pairs in hops_between(built):
        hops[length] += pairs
    mean = Fraction(sum(length * pairs for length, pairs in hops.items()), sum(hops.values()))
    found = (built.gpus, len(built.switches), len(between(built)), max(+hops), mean)
    want = (figures.gpus, figures.switches, figures.cables, figures.diameter, figures.mean_hops)
    assert found == want, f"built {found}, closed form {want}"


def test_bisection_is_the_cut_between_the_first_half_and_the_rest_and_no_other_halves_carry_less(shape):
    built, share = shape.topology(), shape.figures.bisection_share
    units = units_of(shape, list(built.access_links))
    first = share_carried(built, frozenset(sum(units[:len(units) // 2], [])))
    assert first == share, f"the first half's cut carries {first} of its NICs, closed form {share}"
    for seed in range(4):
        half = sum(Random(seed).sample(units, len(units) // 2), [])
        other = share_carried(built, frozenset(half))
        assert other >= share, f"{half} carry only {other}, closed form {share}"


def units_of(shape: Shape, access: list[str]) -> list[list[str]]:
    """Access switches that halves keep together: a dragonfly's groups, else each by itself."""
    size = {Dragonfly: lambda: shape.routers, DragonflyPlus: lambda: shape.leaves}.get(type(shape), lambda: 1)()
    return [access[first:first + size] for first in range(0, len(access), size)]


@pytest.mark.parametrize("dims", [(3,), (6,), (3, 3), (2, 3), (4, 3), (3, 4), (2, 2, 2), (5, 2), (3, 2, 2)], ids=str)
def test_of_all_ways_to_halve_a_torus_the_closed_form_has_the_fewest_cables(dims):
    shape = torus(*dims)
    built = shape.topology()
    bit = {switch.name: 1 << number for number, switch in enumerate(built.switches)}
    cables = Counter(bit[link.a.node] | bit[link.b.node] for link in between(built))
    halves = (sum(half) for half in itertools.combinations(bit.values(), len(bit) // 2))
    fewest = min(sum(count for ends, count in cables.items() if 0 < ends & half < ends) for half in halves)
    assert fewest == shape.bisection_cables, f"{fewest} cables, closed form {shape.bisection_cables}"


@FEW
@given(shapes())
def test_routes_are_all_the_shortest_paths_and_only_these_and_use_every_cable(description):
    plan = make_plan(description.topology(), seed=1)
    used = ports_routed_to(plan, {node.name: node.routes for node in plan.nodes if node.forwards}, plan.topology)
    idle = [str(link.a) for link in between(plan.topology) if not {link.a, link.b} & used]
    assert not idle, f"no route uses {idle}"


@FEW
@given(shapes(), st.randoms(use_true_random=False))
def test_without_a_dead_cable_routes_are_all_the_shortest_paths_of_what_is_left(description, random):
    plan = make_plan(description.topology(), seed=1)
    dead = random.choice(between(plan.topology))
    left = replace(plan.topology, links=tuple(link for link in plan.topology.links if link != dead))
    assert not {dead.a, dead.b} & ports_routed_to(plan, routes_without(plan, [dead]), left)


def ports_routed_to(plan: Plan, routes: Mapping[str, Sequence[Route]], left: Topology) -> set[Port]:
    """All that is used, of `left`; each switch's next hops to each access switch it can reach are compared with networkx's."""
    graph, prefixes, used = graph_of(left), access_prefixes(plan.topology), set()
    cost_of = {port: link.cost for link in left.links for port in (link.a, link.b)}
    costs = [networkx.single_source_dijkstra_path_length(graph, target, weight="cost") for target in prefixes]
    for node in (node for node in plan.nodes if node.forwards):
        routed = via_of(routes[node.name], list(prefixes.values()))
        for target, cost, via in zip(prefixes, costs, routed, strict=True):
            if target == node.name or node.name not in cost:
                continue
            shortest = {port.port.ifname for port in node.ports if port.port in cost_of and port.peer.node in cost
                        and cost[port.peer.node] + cost_of[port.port] == cost[node.name]}
            assert set(via) == shortest, f"{node.name} to {target}: routes {via}, shortest paths {shortest}"
            used |= {Port(node.name, ifname) for ifname in via}
    return used


@FEW
@given(shapes())
def test_names_fit_linux_and_stock_mininet_and_numbers_count_without_gaps(description):
    built = description.topology()
    ClusterTopo(built)  # which refuses a name that is too long
    for server in built.servers:
        ports = [link.a.ifname for link in built.links if link.a.node == server.name]
        assert ports == [f"rail{gpu}" for gpu in range(server.gpus)], f"{server.name}: {ports}"
        assert len({link.b.node for link in built.links if link.a.node == server.name}) == 1, f"{server.name}: two switches"


@pytest.mark.parametrize(
    ("topo", "shape"),
    [
        (topos["fat_tree"](radix=4, edge_up=1, gpus_per_server=3), fat_tree(radix=4, edge_up=1, gpus_per_server=3)),
        (topos["torus"](dims=4), torus(4)),
        (topos["torus"](dims="4x2", node_gpus=2), torus(4, 2, node_gpus=2)),
        (topos["dragonfly"](groups=3, routers=2, router_gpus=2, global_ports=1), dragonfly(3, 2, 2, 1)),
        (topos["dragonfly_plus"](groups=3, leaves=2, leaf_gpus=2, spines=2, global_ports=1), dragonfly_plus(3, 2, 2, 2, 1)),
    ],
    ids=["fat tree", "ring", "torus", "dragonfly", "dragonfly+"],
)
def test_stock_mininet_gets_the_same_nodes_and_cables(topo, shape):
    built = shape.topology()
    assert (len(topo.hosts()), set(topo.switches())) == (len(built.servers), {switch.name for switch in built.switches})
    ends = [{(at["node1"], at["port1"]), (at["node2"], at["port2"])} for _, _, at in topo.links(withInfo=True)]
    cables = Counter(frozenset(node for node, _ in both) for both in ends)
    assert cables == Counter(frozenset((link.a.node, link.b.node)) for link in built.links)


def most_routes(plan: Plan, role: str) -> int:
    return max(len(node.routes) for node in plan.nodes if node.role == role)


def test_a_fat_tree_needs_one_route_at_an_edge_one_an_edge_of_its_pod_above_and_one_a_pod_at_the_core():
    plan = make_plan(fat_tree(radix=16).topology(), seed=1)
    found = {role: most_routes(plan, role) for role in ("edge", "agg", "core")}
    assert found == {"edge": 1, "agg": 8 + 1, "core": 16}, f"{len(access_prefixes(plan.topology))} edges: {found}"


@pytest.mark.parametrize(
    ("shape", "role", "most"),
    [
        (torus(8, 8), "node", 42),                 # where a half of a ring begins is no power of two
        (dragonfly(9, 4, 2, 2), "router", 11),     # one a group, and 3 to the routers of its own
        (dragonfly_plus(9, 4, 2, 4, 2), "leaf", 9),
        (dragonfly_plus(9, 4, 2, 4, 2), "spine", 11),
    ],
    ids=["torus", "dragonfly", "dragonfly+ leaf", "dragonfly+ spine"],
)
def test_prefixes_that_lead_the_same_way_share_routes(shape, role, most):
    plan = make_plan(shape.topology(), seed=1)
    found, prefixes = most_routes(plan, role), len(access_prefixes(plan.topology))
    assert found <= most < prefixes, f"{found} routes for {prefixes} prefixes, want {most}"


def test_the_published_dragonfly_has_72_hosts_and_no_way_of_two_global_cables():
    """Kim et al., figure 5: p = h = 2, a = 4, and so 9 groups."""
    plan = make_plan(dragonfly(9, 4, 2, 2).topology(), seed=1)
    split = EvenSplit(plan)
    for source, target in itertools.permutations([link.a for link in plan.topology.links if link.b.ifname == "down0"], 2):
        ways = split.shares(source, target)
        assert len(ways) <= 3 and set(ways.values()) <= {1}, f"{source} to {target}: {ways}"  # one way, of three cables
        assert sum(port.ifname.startswith("global") for port in ways) <= 1, f"{source} to {target}: {ways}"
    assert plan.topology.gpus == 72


@pytest.mark.parametrize(
    ("shape", "offset", "load"),
    [
        (dragonfly(9, 4, 2, 2), 8, 8),            # all 8 NICs of a group to the next: one global cable for all
        (dragonfly_plus(9, 4, 2, 4, 2), 8, 8),
        (torus(8), 3, 3),                         # tornado: every cable one way carries 3 flows, none the other way
        (fat_tree(radix=4), 4, 1),                # any permutation, spread evenly
    ],
    ids=["dragonfly", "dragonfly+", "torus", "fat tree"],
)
def test_the_worst_pattern_of_each_topology_loads_the_busiest_cable_as_its_papers_say(shape, offset, load):
    """Every NIC sends as much to the one that is `offset` further: Kim et al. 4.1; Dally and Towles 3.3; Al-Fares et al."""
    plan = make_plan(shape.topology(), seed=1)
    nics = [link.a for link in plan.topology.links if link.a.node.startswith("srv")]
    flows = [(source, nics[(place + offset) % len(nics)], 1) for place, source in enumerate(nics)]
    busiest = max(EvenSplit(plan).loads(flows).values())
    assert busiest == pytest.approx(load), f"{busiest} times a NIC's load"


def test_a_fat_tree_of_48_ports_holds_27648_hosts_with_576_paths_between_pods():
    """Al-Fares et al., section 1 and 3.1."""
    figures = fat_tree(radix=48).figures
    assert (figures.gpus, figures.switches, figures.bisection_share) == (27_648, 5 * 48**2 // 4, 1), figures


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fat_tree(radix=5), ["radix=5", "even", "4 would fit"]),
        (lambda: fat_tree(radix=0), ["radix=0", "2 would fit"]),
        (lambda: fat_tree(radix=4, pods=5), ["pods=5", "2 to radix=4"]),
        (lambda: fat_tree(radix=4, pods=1), ["pods=1", "2 to radix=4"]),
        (lambda: fat_tree(radix=4, edge_up=4), ["edge_up=4", "1 to 3"]),
        (lambda: fat_tree(radix=4, edge_up=0), ["edge_up=0", "1 to 3"]),
        (lambda: fat_tree(radix=8, gpus_per_server=3), ["4 NICs under a switch", "gpus_per_server=3", "3 would fit"]),
        (lambda: fat_tree(radix=8, gpus_per_server=0), ["gpus_per_server=0", "at least 1"]),
        (lambda: torus(), ["dims=", "at least one ring"]),
        (lambda: topos["torus"](dims="4xfour"), ["dims='4xfour'", "4x8"]),
        (lambda: torus(4, 1), ["dims=4x1", "2 nodes or more"]),
        (lambda: torus(4, 4, node_gpus=0), ["node_gpus=0", "at least 1"]),
        (lambda: torus(4, 4, node_gpus=3, gpus_per_server=2), ["node_gpus=3", "gpus_per_server=2", "2 would fit"]),
        (lambda: dragonfly(10, 4, 2, 2), ["groups=10", "2 to 9", "8 global ports"]),
        (lambda: dragonfly(2, 4, 2, 2), ["groups=2", "global_ports=2", "at least 3 groups"]),
        (lambda: dragonfly(1, 4, 2, 2), ["groups=1", "at least 2"]),
        (lambda: dragonfly(9, 4, 3, 2, gpus_per_server=2), ["router_gpus=3", "gpus_per_server=2", "2 would fit"]),
        (lambda: dragonfly_plus(10, 4, 2, 4, 2), ["groups=10", "2 to 9", "8 global ports"]),
        (lambda: dragonfly_plus(4, 4, 2, 0, 2), ["spines=0", "at least 1"]),
        (lambda: dragonfly_plus(4, 4, 2, 2, 2, gpus_per_server=4), ["leaf_gpus=2", "gpus_per_server=4", "4 would fit"]),
    ],
)
def test_what_cannot_be_built_is_refused_with_one_line_that_says_what_would_be_right(make, words):
    with pytest.raises(TopologyError) as refused:
        make()
    message = str(refused.value)
    assert "\n" not in message and all(word in message for word in words), message
