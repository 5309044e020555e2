"""Promises about the traffic that load balancers are compared with: every flow crosses the spines, every NIC has its share."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.nic.traffic import PATTERNS, Size
from emu.nic.work_request import arrange
from emu.topology.model import Topology
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib
from emu.workload import patterns

SIZE_BYTES = 960_000


def cluster(leaves: int = 4, per_leaf: int = 4, wiring: str = "single", gpus_per_server: int = 2) -> Topology:
    servers = leaves * per_leaf // gpus_per_server
    shape = SpineLeaf(servers=servers, gpus_per_server=gpus_per_server, wiring=wiring, leaf_down=per_leaf, leaf_up=per_leaf,
                      rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(1)))
    return shape.topology()


def leaf_of(topology: Topology) -> dict:
    return {port: leaf for leaf, ports in patterns.nics_by_leaf(topology).items() for port in ports}


def messages(name: str, topology: Topology, *, qps: int = 1, group_gpus: int = 4, seed: int = 1):
    return PATTERNS[name](topology, Size(SIZE_BYTES, qps, group_gpus), Random(seed))


def test_a_shift_goes_round_all_nics_and_one_by_all_of_them_is_refused():
    topology = cluster()
    nics = [link.a for link in topology.links if link.a.node.startswith("srv")]
    assert patterns.shift(topology, 3) == [(nics[at], nics[(at + 3) % 16]) for at in range(16)]
    for by in (0, 16, 32):
        with pytest.raises(UsageError, match=f"shift by {by} of 16 NICs.*want 1 to 15"):
            patterns.shift(topology, by)


@given(st.integers(2, 6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_permutation_sends_and_receives_once_everywhere_and_never_under_one_leaf(leaves, servers, rng):
    topology = cluster(leaves, per_leaf=2 * servers)
    pairs, leaf = patterns.permutation(topology, rng), leaf_of(topology)
    assert sorted(source for source, _ in pairs) == sorted(target for _, target in pairs) == sorted(leaf)
    stay = [(str(source), str(target)) for source, target in pairs if leaf[source] == leaf[target]]
    assert not stay, f"flows under one leaf: {stay}"


def test_a_seed_decides_the_permutation():
    one, same, other = (patterns.permutation(cluster(), Random(seed)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("senders", [1, 3, 11])
def test_an_incast_comes_from_all_other_leaves_alike_and_its_bystander_sends_to_the_nic_beside(senders):
    topology = cluster()
    leaf, found = leaf_of(topology), patterns.incast(topology, senders)
    (_, beside), *incast = found
    assert len(incast) == senders and len({source for source, _ in found}) == senders + 1, found
    (receiver,) = {target for _, target in incast}
    assert leaf[receiver] == leaf[beside] == "leaf0" and receiver != beside
    counts = Counter(leaf[source] for source, _ in incast)
    assert "leaf0" not in counts and max(counts.values()) - min((counts[f"leaf{at}"] for at in (1, 2, 3))) <= 1, counts


@pytest.mark.parametrize("shape, senders, says", [
    ({}, 12, "senders=12 and a bystander: 12 NICs under other leaves than the first, 4 under it; want 13 and 2"),
    ({"per_leaf": 1, "gpus_per_server": 1}, 2, "3 NICs under other leaves than the first, 1 under it; want 3 and 2"),
])
def test_an_incast_of_more_than_there_are_says_how_many_are_wanted(shape, senders, says):
    with pytest.raises(UsageError, match=says):
        patterns.incast(cluster(**shape), senders)


def test_targets_are_spread_over_all_other_leaves():
    """A permutation of whole leaves would leave path navigation nothing to do."""
    topology = cluster(leaves=4, per_leaf=16)
    leaf = leaf_of(topology)
    pairs = Counter((leaf[source], leaf[target]) for source, target in patterns.permutation(topology, Random(1)))
    assert len(pairs) == 12 and max(pairs.values()) < 16, f"flows between leaves: {pairs}"


def test_a_leaf_with_more_than_half_of_all_nics_is_refused_and_one_with_half_is_not():
    assert len(patterns.permutation(cluster(leaves=2), Random(1))) == 8
    with pytest.raises(UsageError) as error:
        patterns.permutation(cluster(leaves=1), Random(1))
    assert str(error.value) == "a leaf has 4 of 4 NICs; a permutation across leaves wants at most half under one"


def test_groups_stride_over_the_leaves_and_take_each_nic_once():
    topology = cluster()
    found, leaf = patterns.groups(topology, 4), leaf_of(topology)
    assert sorted(port for group in found for port in group) == sorted(leaf)
    for group in found:
        assert len({leaf[port] for port in group}) == 4, f"{list(map(str, group))} under {[leaf[port] for port in group]}"


@pytest.mark.parametrize("size", [1, 3, 32])
def test_groups_that_do_not_come_out_even_are_refused_with_those_that_would(size):
    with pytest.raises(UsageError) as error:
        patterns.groups(cluster(), size)
    assert str(error.value) == f"groups of {size} of 16 NICs; want one of 2, 4, 8, 16"


@pytest.mark.parametrize("wiring", ["single", "rail"])
def test_nics_of_a_rail_share_a_leaf_and_those_of_a_server_with_single_wiring(wiring):
    leaf = leaf_of(cluster(wiring=wiring))
    of_a_server = Counter(len({leaf[port] for port in leaf if port.node == server}) for server in {port.node for port in leaf})
    assert of_a_server == {1 if wiring == "single" else 2: 8}, f"{wiring}: leaves of a server {of_a_server}"


@pytest.mark.parametrize("qps", [1, 4, 7])
def test_a_permutations_bytes_are_split_evenly_over_its_queue_pairs(qps):
    sent = Counter()
    found = messages("permutation", cluster(), qps=qps)
    for message in found:
        sent[message.source] += message.size_bytes
    assert set(sent.values()) == {SIZE_BYTES}, f"bytes by NIC: {set(sent.values())}"
    sizes = {message.size_bytes for message in found}
    assert len(found) == 16 * qps and max(sizes) - min(sizes) <= 1, f"{len(found)} messages of {sizes} bytes"


def test_all_to_all_sends_a_block_to_every_other_of_the_group_round_by_round():
    topology = cluster()
    found = messages("all_to_all", topology)
    groups = patterns.groups(topology, 4)
    wanted = Counter((a, b) for group in groups for a in group for b in group if a != b)
    assert Counter((message.source, message.target) for message in found) == wanted
    assert {message.size_bytes for message in found} == {SIZE_BYTES // 4}
    first_round = found[: len(topology.servers) * 2]
    assert len({message.source for message in first_round}) == 16, "the first round is listed first, over all groups"
    arrange(found)  # refuses a wait for what arrives elsewhere


def test_allreduce_takes_a_channel_for_each_rail_and_queue_pair_and_leaves_scale_up_out():
    topology = cluster()
    found = messages("allreduce", topology, qps=3)
    assert all(message.source.node != message.target.node for message in found)
    assert {message.channel for message in found} == set(range(6)), sorted({message.channel for message in found})
    per_channel = Counter(message.channel for message in found)
    assert len(set(per_channel.values())) == 1, per_channel
    arrange(found)


def test_a_ring_of_more_messages_than_the_nics_take_is_refused_before_it_is_made():
    topology = cluster(leaves=10, per_leaf=64, gpus_per_server=8)
    with pytest.raises(UsageError) as error:
        PATTERNS["allreduce"](topology, Size(SIZE_BYTES, 4, 16), Random(1))
    assert "qps=4 has 3,271,680 messages, more than 1,048,576; want qps up to 1" in str(error.value)
