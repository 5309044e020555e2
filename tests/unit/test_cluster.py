"""Promises about the cluster that the common parameters describe: each parameter reaches the topology."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emu.errors import TopologyError, UsageError
from emu.scenario import balancing, parameters, scale_out, spine_leaf
from emu.switch.leaves import need_leaves_and_spines
from emu.topology.plan import make_plan
from emu.units import gbps

DECLARED = parameters.select(
    "gpus", "gpus_per_server", "wiring", "leaf_down", "leaf_up", "rate_gbps", "mtu", "delay_ns",
    "kmin_bytes", "kmax_bytes", "pmax",
    "ecn_profile", "buffer_bytes",
)


def cluster(*settings: str):
    return spine_leaf(next(DECLARED.choose(settings).combinations()))


def test_every_parameter_is_in_the_topology():
    topology = cluster("gpus=24", "gpus_per_server=4", "wiring=single", "leaf_down=8", "leaf_up=2", "rate_gbps=200", "mtu=1024",
                       "delay_ns=300", "kmin_bytes=1000", "kmax_bytes=2000", "pmax=0.5", "buffer_bytes=9000")
    assert (topology.gpus, len(topology.servers), topology.name) == (24, 6, "spine_leaf_single")
    assert (len(topology.switches_of("leaf")), len(topology.switches_of("spine"))) == (3, 2)
    assert {(link.rate_bps, link.delay_ns) for link in topology.links} == {(gbps(200), 300)}
    queue = topology.queue
    assert (topology.path_mtu_bytes, queue.buffer_bytes) == (1024, 9000)
    assert (queue.ecn.kmin_bytes, queue.ecn.kmax_bytes, queue.ecn.pmax) == (1000, 2000, 0.5)


def test_gpus_that_do_not_fill_their_servers_are_refused_and_those_that_do_are_not():
    with pytest.raises(UsageError) as error:
        cluster("gpus=20")
    assert str(error.value) == "gpus=20 do not fill servers of gpus_per_server=8; want a multiple of 8"
    assert cluster("gpus=16").gpus == 16


def test_a_server_too_wide_for_its_leaf_is_refused():
    with pytest.raises(TopologyError, match="leaf_down=4 is no multiple of gpus_per_server=8"):
        cluster("wiring=single", "leaf_down=4")


SCALE_OUT = parameters.select(
    "gpus", "topology", "leaf_down", "leaf_up", "radix", "edge_up", "dims", "group_switches", "switch_gpus", "global_ports", "lb",
    "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "buffer_bytes", gpus_per_server=2,
)


def asked(*settings: str):
    return next(SCALE_OUT.choose(settings).combinations())


@pytest.mark.parametrize(
    ("settings", "access", "switches"),
    [
        (("topology=spine_leaf", "gpus=64"), 8, 16),
        (("topology=fat_tree", "gpus=64"), 16, 48),
        (("topology=fat_tree", "gpus=72", "radix=8", "edge_up=2"), 12, 12 + 6 + 8),
        (("topology=torus", "gpus=64"), 32, 32),
        (("topology=torus", "gpus=64", "dims=4x2x2"), 16, 16),
        (("topology=dragonfly", "gpus=64"), 32, 32),
        (("topology=dragonfly_plus", "gpus=64"), 32, 64),
    ],
    ids=str,
)
def test_every_topology_is_built_for_the_gpus_asked_for_with_the_links_asked_for(settings, access, switches):
    built = scale_out(asked(*settings, "rate_gbps=200", "delay_ns=300", "mtu=1024")).topology()
    assert (built.gpus, len(built.access_links), len(built.switches)) == (int(settings[1][5:]), access, switches)
    assert {(link.rate_bps, link.delay_ns) for link in built.links} == {(gbps(200), 300)} and built.path_mtu_bytes == 1024


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("topology=spine_leaf", "gpus=63"), ["gpus=63", "gpus_per_server=2", "multiple of 2"]),
        (("topology=fat_tree", "gpus=72"), ["gpus=72", "pods of 16", "multiple of 16"]),
        (("topology=torus", "gpus=72"), ["gpus=72", "32 nodes of dims=4x8", "multiple of 32"]),
        (("topology=torus", "dims=4*8"), ["dims='4*8'", "4x8"]),
        (("topology=torus", "dims=0x8"), ["0 nodes of dims=0x8"]),
        (("topology=dragonfly", "gpus=60"), ["gpus=60", "group_switches=4", "switch_gpus=2", "multiple of 8"]),
        (("topology=dragonfly", "gpus=80"), ["groups=10", "2 to 9"]),
        (("topology=ring", "gpus=64"), ["'ring'", "fat_tree"]),
    ],
    ids=str,
)
def test_gpus_that_do_not_fill_a_topology_are_refused_with_what_would(settings, words):
    with pytest.raises(UsageError) as refused:
        scale_out(asked(*settings))
    message = str(refused.value)
    assert "\n" not in message and all(word in message for word in words), message


@pytest.mark.parametrize("kind", ["spine_leaf", "fat_tree", "torus", "dragonfly", "dragonfly_plus"])
@pytest.mark.parametrize("lb", ["ecmp", "eecmp", "path", "spray", "flowlet", "ddc"])
def test_modes_that_choose_at_leaves_are_refused_where_the_way_is_not_chosen_at_a_leaf(kind, lb):
    p = asked(f"topology={kind}", "gpus=64", f"lb={lb}")
    built = scale_out(p).topology()
    if kind == "spine_leaf" or lb == "ecmp":
        need_leaves_and_spines(built, lb)
        return
    with pytest.raises(UsageError) as refused, balancing(SimpleNamespace(plan=make_plan(built, 1)), p, ()):
        pass
    message = str(refused.value)
    assert "\n" not in message and all(word in message for word in (f"lb={lb}", kind, "want lb=ecmp")), message
