"""Promises about a cluster's description: every cable goes where the wiring says; what no switch holds is refused."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import TopologyError, UsageError
from emu.topology import naming
from emu.topology.mininet_topo import ClusterTopo, topos
from emu.topology.model import Link, Port, Server, Switch, Topology, nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

QUEUE = QueueProfile(buffer_bytes=mib(16))


def shape(**changes) -> SpineLeaf:
    """4 servers of 2 GPUs, two groups, 1:1."""
    given_ = {"servers": 4, "gpus_per_server": 2, "wiring": "rail", "leaf_down": 2, "leaf_up": 2, "rate_bps": gbps(400)}
    return SpineLeaf(queue=QUEUE, **given_ | changes)


def cable(a: Port, b: Port, **changes) -> Link:
    return Link(a=a, b=b, **{"rate_bps": gbps(100)} | changes)


def small_topology(**changes) -> Topology:
    """One server with one NIC under one leaf."""
    parts = {
        "name": "t",
        "servers": (Server(name="srv0", gpus=1),),
        "queue": QUEUE,
        "switches": (Switch(name="leaf0", role="leaf", radix=4),),
        "links": (cable(nic(0, 0), Port("leaf0", "down0")),),
    }
    return Topology(**parts | changes)


@pytest.mark.parametrize(
    ("server", "gpu", "port"),
    [
        (0, 0, "leaf0:down0"),
        (0, 1, "leaf1:down0"),
        (1, 0, "leaf0:down1"),
        (1, 1, "leaf1:down1"),
        (2, 0, "leaf2:down0"),
        (2, 1, "leaf3:down0"),
        (3, 0, "leaf2:down1"),
        (3, 1, "leaf3:down1"),
    ],
)
def test_rail_wiring_takes_nic_k_of_a_server_to_leaf_k_of_its_group(server, gpu, port):
    assert str(shape(wiring="rail").topology().peer(nic(server, gpu))) == port


@pytest.mark.parametrize(
    ("server", "gpu", "port"),
    [
        (0, 0, "leaf0:down0"),
        (0, 1, "leaf0:down1"),
        (1, 0, "leaf0:down2"),
        (1, 1, "leaf0:down3"),
        (2, 0, "leaf1:down0"),
        (2, 1, "leaf1:down1"),
        (3, 0, "leaf1:down2"),
        (3, 1, "leaf1:down3"),
    ],
)
def test_single_wiring_takes_all_nics_of_a_server_to_one_leaf(server, gpu, port):
    assert str(shape(wiring="single", leaf_down=4).topology().peer(nic(server, gpu))) == port


@pytest.mark.parametrize(
    ("wiring", "leaf_down", "leaves"),
    [("rail", 2, 4), ("rail", 3, 4), ("rail", 4, 2), ("single", 4, 2), ("single", 2, 4), ("single", 8, 1)],
)
def test_as_many_leaves_as_the_servers_need(wiring, leaf_down, leaves):
    built = shape(wiring=wiring, leaf_down=leaf_down)
    assert (built.leaves, len(built.topology().switches_of("leaf"))) == (leaves, leaves)


def test_counts_of_a_published_size_640_gpus():
    big = shape(servers=80, gpus_per_server=8, leaf_down=16, leaf_up=16).topology()
    counts = {
        "gpus": big.gpus,
        "leaves": len(big.switches_of("leaf")),
        "spines": len(big.switches_of("spine")),
        "links": len(big.links),
    }
    assert counts == {"gpus": 640, "leaves": 40, "spines": 16, "links": 640 + 40 * 16}


@pytest.mark.parametrize(
    ("down", "up", "ratio"),
    [(2, 2, Fraction(1)), (48, 16, Fraction(3)), (3, 2, Fraction(3, 2)), (2, 4, Fraction(1, 2))],
)
def test_oversubscription_is_the_exact_ratio_of_down_to_up(down, up, ratio):
    assert shape(leaf_down=down, leaf_up=up).oversubscription == ratio


def test_a_fabric_of_one_leaf_has_no_oversubscription_and_no_spine():
    alone = shape(servers=2, gpus_per_server=1, leaf_up=0)
    assert alone.oversubscription is None
    assert [switch.name for switch in alone.topology().switches] == ["leaf0"]


def test_spines_fewer_than_uplinks_get_parallel_links():
    built = shape(leaf_up=4, spines=2).topology()
    per_pair = Counter((link.a.node, link.b.node) for link in built.links if link.b.node.startswith("spine"))
    assert set(per_pair.values()) == {2}, per_pair


@pytest.mark.parametrize(
    ("changes", "what", "why", "fits"),
    [
        ({"servers": 0}, "servers=0", "", "at least 1"),
        ({"gpus_per_server": 0}, "gpus_per_server=0", "", "at least 1"),
        ({"leaf_down": -1}, "leaf_down=-1", "", "at least 1"),
        ({"leaf_up": -1}, "leaf_up=-1", "", "0 (a fabric of one leaf) or more"),
        ({"leaf_up": 0}, "leaf_up=0", "4 leaves unconnected", "at least 1"),
        ({"servers": 2, "gpus_per_server": 1, "leaf_up": 0, "spines": 2}, "spines=2", "leaf_up=0", "leaf_up"),
        ({"rate_bps": -1}, "srv0:rail0 - leaf0:down0", "rate -1e-09 Gb/s", "1 to 1600 Gb/s"),
        ({"rate_bps": gbps(-1)}, "srv0:rail0 - leaf0:down0", "rate -1 Gb/s", "1 to 1600 Gb/s"),
        ({"rate_bps": gbps(1601)}, "srv0:rail0 - leaf0:down0", "rate 1601 Gb/s", "1 to 1600 Gb/s"),
        ({"delay_ns": -5}, "srv0:rail0 - leaf0:down0", "delay -5 ns", "0 or more"),
        (
            {"leaf_down": 65, "leaf_up": 64},
            "leaf_down=65 + leaf_up=64",
            "needs 129 ports",
            "64 down and 64 up would fit",
        ),
        (
            {"servers": 400, "leaf_down": 4, "leaf_up": 4, "spines": 1},
            "200 leaves with 4 links to each spine",
            "a spine has 128",
            "more spines, fewer leaves",
        ),
        ({"leaf_up": 4, "spines": 3}, "spines=3", "does not divide leaf_up=4", "1, 2, 4 would fit"),
        ({"leaf_up": 2, "spines": 0}, "spines=0", "leaf_up=2", "1, 2 would fit"),
        ({"leaf_up": 2, "spines": 4}, "spines=4", "leaf_up=2", "1, 2 would fit"),
        ({"wiring": "single", "leaf_down": 3}, "leaf_down=3", "no multiple of gpus_per_server=2", "2 would fit"),
        (
            {"wiring": "single", "gpus_per_server": 8, "leaf_down": 4},
            "leaf_down=4",
            "all go to one leaf",
            "8 would fit",
        ),
        ({"wiring": "ring"}, "wiring 'ring'", "unknown", "rail, single"),
        ({"path_mtu_bytes": 9000}, "mtu=9000", "no RoCE path MTU", "2048 or 4096"),
    ],
)
def test_a_bad_cluster_is_refused_with_one_line_that_says_what_why_and_what_fits(changes, what, why, fits):
    with pytest.raises(UsageError) as refused:
        shape(**changes).topology()
    message = str(refused.value)
    assert "\n" not in message
    assert what in message and why in message and fits in message, message


@pytest.mark.parametrize(
    ("rate_bps", "ok"), [(gbps(1) - 1, False), (gbps(1), True), (gbps(1600), True), (gbps(1600) + 1, False)]
)
def test_link_rates_from_1_to_1600_gbps_are_taken(rate_bps, ok):
    if ok:
        assert cable(nic(0, 0), Port("leaf0", "down0"), rate_bps=rate_bps).rate_bps == rate_bps
        return
    with pytest.raises(TopologyError, match="want 1 to 1600 Gb/s"):
        cable(nic(0, 0), Port("leaf0", "down0"), rate_bps=rate_bps)


@pytest.mark.parametrize(("down", "up", "radix", "ok"), [(64, 64, 128, True), (64, 64, 127, False)])
def test_a_leaf_may_use_every_port_of_its_radix_and_not_one_more(down, up, radix, ok):
    description = {"servers": 64, "gpus_per_server": 1, "leaf_down": down, "leaf_up": up, "radix": radix}
    if ok:
        assert len(shape(**description).topology().links) == 128
        return
    with pytest.raises(TopologyError, match="needs 128 ports but a leaf has 127; 63 down and 63 up would fit"):
        shape(**description)


@pytest.mark.parametrize(
    ("name", "ok"),
    [
        ("r" * 15, True),
        ("r" * 16, False),
        ("", False),
        ("a b", False),
        ("a/b", False),
        ("a:b", False),
        ("..", False),
        ("rail0", True),
    ],
)
def test_interface_names_are_what_linux_takes(name, ok):
    if ok:
        assert naming.checked_ifname(name) == name
        return
    with pytest.raises(TopologyError) as refused:
        Port("srv0", name)
    assert repr(name) in str(refused.value) and "Linux" in str(refused.value), refused.value


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"servers": (Server(name="leaf0", gpus=1),)}, ["'leaf0' is used 2 times", "once"]),
        ({"links": (cable(nic(7, 0), Port("leaf0", "down0")),)}, ["srv7:rail0", "no node 'srv7'"]),
        ({"links": (cable(nic(0, 0), Port("leaf0", "down0")),) * 2}, ["has 2 cables; want one"]),
        (
            {"links": tuple(cable(nic(0, k), Port("leaf0", f"down{k}")) for k in range(5))},
            ["leaf0 needs 5 ports", "radix is 4", "bigger radix"],
        ),
        ({"servers": (Server(name="srv0", gpus=1), Server(name="srv1", gpus=1))}, ["srv1", "no NIC", "link"]),
        ({"links": (cable(Port("leaf0", "down0"), nic(0, 0)),)}, ["leaf0:down0 - srv0:rail0", "end a"]),
    ],
)
def test_nodes_and_cables_that_do_not_fit_together_are_refused(changes, words):
    with pytest.raises(TopologyError) as refused:
        small_topology(**changes)
    message = str(refused.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_a_server_of_0_gpus_is_refused():
    with pytest.raises(TopologyError, match="srv0.* 0 GPUs; want at least 1"):
        Server(name="srv0", gpus=0)


def test_peer_of_an_empty_port_says_so():
    with pytest.raises(KeyError, match="srv9:rail0 has no link"):
        small_topology().peer(nic(9, 0))


@st.composite
def valid_shapes(draw) -> SpineLeaf:
    gpus = draw(st.integers(1, 8))
    wiring = draw(st.sampled_from(["rail", "single"]))
    spines, parallel = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    down = draw(st.integers(1, 6)) * (gpus if wiring == "single" else 1)
    return shape(
        servers=draw(st.integers(1, 20)),
        gpus_per_server=gpus,
        wiring=wiring,
        leaf_down=down,
        leaf_up=spines * parallel,
        spines=spines,
        radix=512,
    )


@given(valid_shapes())
def test_every_valid_cluster_plugs_each_nic_once_and_loads_all_spines_alike(description):
    built = description.topology()
    uses = Counter(port for link in built.links for port in (link.a, link.b))
    nics = {nic(s, g) for s in range(description.servers) for g in range(description.gpus_per_server)}
    assert set(uses.values()) == {1}
    assert {port for port in uses if port.node.startswith("srv")} == nics
    spine_degrees = Counter(port.node for port in uses if port.node.startswith("spine"))
    assert set(spine_degrees.values()) == {description.leaves * description.leaf_up // description.spine_count}, (
        spine_degrees
    )
    uplinks = Counter(port.node for port in uses if port.ifname.startswith("up"))
    assert uplinks == {f"leaf{i}": description.leaf_up for i in range(description.leaves)}
    for spine, degree in spine_degrees.items():
        assert all(Port(spine, f"down{k}") in uses for k in range(degree)), f"{spine}: its port numbers have gaps"


@given(valid_shapes())
def test_same_rail_servers_of_a_group_share_a_leaf_and_single_wired_servers_keep_theirs(description):
    leaf_of = {link.a: link.b.node for link in description.topology().links if link.a.node.startswith("srv")}
    for server in range(description.servers):
        leaves = [leaf_of[nic(server, gpu)] for gpu in range(description.gpus_per_server)]
        first_of_group = server - server % description.servers_per_group
        assert leaves == [leaf_of[nic(first_of_group, gpu)] for gpu in range(description.gpus_per_server)]
        assert len(set(leaves)) == (description.gpus_per_server if description.wiring == "rail" else 1)


@pytest.mark.parametrize("kind", ["rail", "single"])
def test_mininet_topologies_have_the_same_nodes_and_cables(kind):
    topo = topos[kind](servers=4, gpus_per_server=2, leaf_down=2, leaf_up=2)
    cluster = shape(wiring=kind).topology()
    assert sorted(topo.hosts()) == [f"srv{i}" for i in range(4)]
    assert set(topo.switches()) == {switch.name for switch in cluster.switches}
    assert len(topo.links()) == len(cluster.links)


def test_a_mininet_interface_name_that_linux_would_not_take_is_refused():
    big = shape(servers=130, gpus_per_server=1, leaf_down=1, leaf_up=101, spines=101, radix=256).topology()
    with pytest.raises(TopologyError, match="'spine100-down100' has 16 characters"):
        ClusterTopo(big)
