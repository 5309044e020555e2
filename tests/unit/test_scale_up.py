"""Promises about scale-up domains: each accelerator has the bandwidth its maker states, however it is cabled."""

from __future__ import annotations

from collections import Counter

import pytest

from emu.errors import UsageError
from emu.topology.model import Port
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.scale_up import KINDS, LOSSLESS, MESHES, ScaleUp, scale_up_alone, with_scale_up
from emu.topology.scale_up_profiles import PROFILES, profile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

JOINED = KINDS[1:]
# GB/s both ways, as data sheets have it (domain facts 9); where they state one way, twice that
BOTH_WAYS_GBYTES = {
    "nvlink1": 160, "nvlink2": 300, "nvlink3": 600, "nvlink4": 900, "nvlink5": 1800, "nvlink6": 3600,
    "ualink200": 2400, "sue": 2400, "ub": 2 * 392, "infinity_fabric": 896,
}
ECN = QueueProfile(buffer_bytes=mib(16), ecn=EcnProfile(kmin_bytes=800_000, kmax_bytes=3_200_000, pmax=0.2))


def described(kind: str, technology: str = "nvlink4", **changes) -> ScaleUp:
    """8 GPUs over two servers of 4."""
    return ScaleUp(kind=kind, technology=profile(technology), **{"gpus_per_server": 4, "domain_gpus": 8} | changes)


def pairs(scale_up: ScaleUp):
    return [(a, b) for a in range(scale_up.domain_gpus) for b in range(scale_up.domain_gpus) if a != b]


def rail_cluster(servers: int = 2):
    return SpineLeaf(servers=servers, gpus_per_server=4, wiring="rail", leaf_down=2, leaf_up=2, rate_bps=gbps(400),
                     queue=ECN).topology()


@pytest.mark.parametrize("name", PROFILES)
def test_an_accelerator_has_the_bandwidth_that_its_maker_states(name):
    assert profile(name).both_ways_gbytes == BOTH_WAYS_GBYTES[name], f"{profile(name).both_ways_gbytes} GB/s"
    assert profile(name).rate_bps * 2 / 8e9 == BOTH_WAYS_GBYTES[name]


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("kind", JOINED)
def test_the_ports_of_a_gpu_add_up_to_its_bandwidth_in_every_topology(kind, name):
    scale_up = described(kind, name)
    sums, ports = Counter(), Counter()
    for link in scale_up_alone(2, scale_up).links:
        for port in (link.a, link.b):
            if port.node.startswith("srv"):
                gpu = port.node, port.ifname.removeprefix("nv").split("to")[0]
                sums[gpu] += link.rate_bps
                ports[gpu] += 1
    assert len(sums) == 8 and set(ports.values()) == {scale_up.degree}, ports
    lost_bps = {profile(name).rate_bps - total for total in sums.values()}
    assert all(0 <= lost < scale_up.degree for lost in lost_bps), f"{lost_bps} bit/s lost to division, {scale_up.degree} ports"


@pytest.mark.parametrize(
    ("kind", "degree", "links", "switches"),
    [("full_mesh", 7, 28, 0), ("hybrid_mesh", 4, 16, 0), ("switch", 1, 8, 1), ("two_tier_switch", 1, 10, 3), ("none", 0, 0, 0)],
)
def test_links_and_switches_are_as_many_as_the_topology_says(kind, degree, links, switches):
    scale_up = described(kind)
    assert (scale_up.degree, len(list(scale_up.links(8))), len(list(scale_up.switches(8)))) == (degree, links, switches)


@pytest.mark.parametrize("kind", JOINED)
def test_a_link_has_as_many_cables_as_bring_its_rate(kind):
    scale_up = described(kind)
    for link in scale_up.links(8):
        least = (link.cables - 1) * gbps(scale_up.technology.link_gbps)
        assert least < link.rate_bps <= least + gbps(scale_up.technology.link_gbps), link


def test_real_machines_come_out_as_they_are_built():
    """DGX-1 with P100: 4 NVLinks, one to each neighbour. MI300X: 7 links of 64 GB/s. CloudMatrix384: 336 L1 and 112 L2 chips."""
    cube, star = described("hybrid_mesh", "nvlink1"), described("full_mesh", "infinity_fabric", gpus_per_server=8)
    assert {(link.rate_bps, link.cables) for link in cube.links(8)} == {(gbps(160), 1)}
    assert {(link.rate_bps, link.cables) for link in star.links(8)} == {(gbps(512), 1)}
    matrix = described("two_tier_switch", "ub", gpus_per_server=8, domain_gpus=384, planes=7, spines=16)
    roles = Counter(switch.role for switch in matrix.switches(384))
    assert roles == {"nvswitch": 336, "nvspine": 112}, roles


@pytest.mark.parametrize(("planes", "spines"), [(1, 1), (2, 1), (1, 4), (7, 16)])
def test_two_tiers_have_as_much_bandwidth_up_as_down(planes, spines):
    scale_up = described("two_tier_switch", "ub", domain_gpus=16, planes=planes, spines=spines)
    down, up = Counter(), Counter()
    for link in scale_up.links(32):
        if link.b.node.startswith("nvleaf"):
            down[link.b.node] += link.rate_bps
        else:
            up[link.a.node] += link.rate_bps
    assert len(down) == 8 * planes and down == up, f"down {down}, up {up}"


@pytest.mark.parametrize("kind", JOINED)
def test_every_pair_has_a_way_over_cables_that_exist(kind):
    scale_up = described(kind)
    topology = scale_up_alone(4, scale_up)
    for source, target in pairs(scale_up):
        hops = scale_up.hops(8 + source, 8 + target)
        for sender, receiver in hops:
            ends = topology.peer(sender), topology.peer(receiver)
            assert ends == (receiver, sender) if kind in MESHES else {end.node[:2] for end in ends} == {"nv"}, (sender, ends)
        assert {port.node for hop in hops for port in hop} <= {"srv2", "srv3"}, f"{hops} leave the domain"
        for (_, arrival), (departure, _) in zip(hops, hops[1:], strict=False):
            same = arrival.node == departure.node and arrival.ifname.split("to")[0] == departure.ifname.split("to")[0]
            assert same, f"relayed by {arrival}, which is not the GPU of {departure}"


def test_a_hybrid_mesh_relays_just_the_pairs_without_a_cable_and_evenly():
    scale_up = described("hybrid_mesh")
    lengths = Counter(len(scale_up.hops(*pair)) for pair in pairs(scale_up))
    assert lengths == {1: 32, 2: 24}, lengths
    uses = Counter(sender for pair in pairs(scale_up) for sender, _ in scale_up.hops(*pair))
    cross = {uses[Port(f"srv{gpu // 4}", f"nv{gpu % 4}to{(gpu + 4) % 8}")] for gpu in range(8)}
    inside = {count for port, count in uses.items() if int(port.ifname.split("to")[1]) // 4 == int(port.node[3:])}
    assert (cross, inside) == ({4}, {2}), f"ways over a cable between halves: {cross}, within one: {inside}"


@pytest.mark.parametrize(
    ("kind", "near_ns", "far_ns"),
    [("full_mesh", 150, 150), ("hybrid_mesh", 150, 300), ("switch", 400, 400), ("two_tier_switch", 400, 900)],
)
def test_the_links_of_a_way_delay_as_much_as_its_links_and_switches(kind, near_ns, far_ns):
    scale_up = described(kind)
    assert (scale_up.one_way_ns(0, 1), scale_up.one_way_ns(0, 7)) == (near_ns, far_ns)
    delays = [link.delay_ns for link in scale_up.links(8)]
    down_ns = scale_up.technology.link_ns + scale_up.technology.switch_ns // 2
    up_ns = scale_up.technology.link_ns + scale_up.technology.switch_ns
    assert set(delays) == ({150} if kind in MESHES else {down_ns} if kind == "switch" else {down_ns, up_ns})


@pytest.mark.parametrize("kind", JOINED)
def test_names_of_the_largest_domain_are_short_and_used_once(kind):
    scale_up = described(kind, "ualink200", domain_gpus=128 if kind in MESHES else 1024, gpus_per_server=8)
    uses = Counter(port for link in scale_up.links(scale_up.domain_gpus) for port in (link.a, link.b))
    assert max(uses.values()) == 1 and max(len(port.ifname) for port in uses) <= 15


@pytest.mark.parametrize("kind", JOINED)
def test_rails_keep_their_ports_routes_and_marks_beside_a_scale_up_domain(kind):
    alone = make_plan(rail_cluster(), seed=1)
    joined = make_plan(with_scale_up(rail_cluster(), described(kind)), seed=1)
    for before in alone.nodes:
        after = next(node for node in joined.nodes if node.name == before.name)
        rails = {port.port: port.ifindex for port in after.ports if port.port in alone.ports}
        assert rails == {port.port: port.ifindex for port in before.ports}
        kept = [(route.via, route.table) for route in after.routes if not route.via[0].startswith("nv")]
        assert kept == [(route.via, route.table) for route in before.routes], f"{before.name}: {kept}"
    marked = {port.port for port in joined.ports.values() if port.queue and port.queue.ecn}
    assert marked == {port.port for port in alone.ports.values() if port.queue}
    assert all(port.queue == LOSSLESS for port in joined.ports.values() if port.port.node.startswith("nv"))


def test_ports_to_scale_up_switches_have_tables_of_their_own_and_cables_to_gpus_none():
    tables = {}
    for kind in JOINED:
        server = make_plan(with_scale_up(rail_cluster(), described(kind)), seed=1).nodes[0]
        tables[kind] = [port.port.ifname for port, _ in server.rail_tables]
        numbers = [table for _, table in server.rail_tables]
        assert len(set(numbers)) == len(numbers) and server.routes[0].via == ("rail0",), server.routes
    rails = [f"rail{k}" for k in range(4)]
    switched = [*rails, *(f"nv{k}" for k in range(4))]
    assert tables == {"full_mesh": rails, "hybrid_mesh": rails, "switch": switched, "two_tier_switch": switched}


def test_a_server_of_many_ports_never_uses_the_kernel_s_own_tables():
    many = described("switch", "nvlink4", gpus_per_server=16, domain_gpus=16, planes=18)
    server = make_plan(scale_up_alone(1, many), seed=1).nodes[0]
    numbers = {table for _, table in server.rail_tables}
    assert len(numbers) == 16 * 18 and not numbers & {253, 254, 255}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "torus"}, ["scale_up 'torus'", "full_mesh"]),
        ({"domain_gpus": 512}, ["domain_gpus=512", "2 to 256"]),
        ({"domain_gpus": 1}, ["domain_gpus=1", "2 to 256"]),
        ({"kind": "hybrid_mesh", "domain_gpus": 7}, ["domain_gpus=7", "halves", "6 would fit"]),
        ({"kind": "hybrid_mesh", "domain_gpus": 2}, ["domain_gpus=2", "4 would fit"]),
        ({"kind": "two_tier_switch", "domain_gpus": 6}, ["domain_gpus=6", "gpus_per_server=4", "4 would fit"]),
        ({"kind": "full_mesh", "planes": 2}, ["planes=2", "full_mesh", "want 1"]),
        ({"kind": "switch", "planes": 0}, ["planes=0", "at least 1"]),
    ],
)
def test_a_domain_that_does_not_fit_is_refused_with_one_line(changes, words):
    with pytest.raises(UsageError) as refused:
        described(**{"kind": "switch"} | changes)
    message = str(refused.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_clusters_that_a_domain_does_not_divide_are_refused():
    with pytest.raises(UsageError, match="domain_gpus=8 does not divide the 12 GPUs"):
        with_scale_up(rail_cluster(3), described("switch"))
    with pytest.raises(UsageError, match="srv0 has 4 GPUs; want 8"):
        with_scale_up(rail_cluster(), described("switch", gpus_per_server=8))
    with pytest.raises(UsageError, match="scale_up=none leaves servers without NICs unconnected"):
        scale_up_alone(2, described("none"))
    with pytest.raises(UsageError, match="GPUs 0 and 8 are not two of a domain of 8"):
        described("switch").hops(0, 8)
    with pytest.raises(UsageError, match="unknown scale-up technology 'nvlink9'.*nvlink6"):
        profile("nvlink9")
