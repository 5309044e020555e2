"""Promises about the cluster that the common parameters describe: each parameter reaches the topology."""

from __future__ import annotations

import pytest

from emu.errors import TopologyError, UsageError
from emu.scenario import parameters, spine_leaf
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
    assert str(error.value) == "gpus=20 do not fill servers of gpus_per_server=8; want a multiple of it"
    assert cluster("gpus=16").gpus == 16


def test_a_server_too_wide_for_its_leaf_is_refused():
    with pytest.raises(TopologyError, match="leaf_down=4 is no multiple of gpus_per_server=8"):
        cluster("wiring=single", "leaf_down=4")
