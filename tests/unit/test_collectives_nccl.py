"""What NCCL and nccl-tests do, promise by promise: tree shapes, the order of an all-to-all, PXN, chunk sizes, bandwidths."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from emu.collectives.all_to_all import nccl_rounds, quadratic_distances
from emu.collectives.catalogue import schedule
from emu.collectives.conservation import problems
from emu.collectives.double_tree import PATTERNS, double_tree_all_reduce, double_tree_parents
from emu.collectives.formulas import algbw_gbyte_per_s, bus_factor, busbw_gbyte_per_s
from emu.collectives.moe import Routing, dispatch_bytes, moe_dispatch
from emu.collectives.placement import Placement
from emu.collectives.ring import ring_order
from emu.collectives.traffic import traffic
from emu.collectives.tree import tree_chunk_bytes
from emu.errors import UsageError


def depth(nodes: int, half: int) -> int:
    parents = {node: up for node, (up, _) in double_tree_parents(nodes, half).items()}

    def hops(node: int) -> int:
        return 1 + hops(parents[node]) if node in parents else 0

    return max(hops(node) for node in range(nodes))


def test_the_first_tree_over_14_is_the_one_drawn_in_ncclgetbtree():
    children: dict[int, list[int]] = {}
    for node, (up, _) in double_tree_parents(14, 0).items():
        children.setdefault(up, []).append(node)
    assert children == {0: [8], 8: [4, 12], 4: [2, 6], 12: [10, 13], 2: [1, 3], 6: [5, 7], 10: [9, 11]}


@pytest.mark.parametrize(
    "nodes, drawn",
    [
        (12, {11: [3], 3: [1, 7], 1: [0, 2], 7: [5, 9], 5: [4, 6], 9: [8, 10]}),
        (13, {1: [9], 9: [0, 5], 5: [3, 7], 0: [11], 3: [2, 4], 7: [6, 8], 11: [10, 12]}),
    ],
)
def test_the_second_tree_is_the_first_mirrored_or_shifted(nodes, drawn):
    children: dict[int, list[int]] = {}
    for node, (up, _) in double_tree_parents(nodes, 1).items():
        children.setdefault(up, []).append(node)
    assert {up: sorted(below) for up, below in children.items()} == drawn


@pytest.mark.parametrize("nodes, hops", [(30, 5), (60, 6), (64, 6), (80, 7), (128, 7)])
def test_both_trees_are_as_deep_as_the_logarithm_of_the_servers(nodes, hops):
    assert (depth(nodes, 0), depth(nodes, 1)) == (hops, hops)


@pytest.mark.parametrize("nodes", range(2, 65))
def test_an_inner_node_of_one_tree_is_a_leaf_of_the_other_but_for_one_if_odd(nodes):
    inner = [{up for up, _ in double_tree_parents(nodes, half).values()} for half in (0, 1)]
    both = inner[0] & inner[1]
    assert len(both) <= nodes % 2, f"{nodes} servers: {both} are inner nodes twice"
    assert all(max(Counter(up for up, _ in double_tree_parents(nodes, half).values()).values()) <= 2 for half in (0, 1))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("servers", [1, 2, 5, 8])
def test_every_tree_pattern_sums_right_and_keeps_its_channel_on_one_rail(pattern, servers):
    tree = double_tree_all_reduce(Placement(4 * servers, 4), 5003, channels=4, pattern=pattern)
    wrong = list(problems(tree))
    assert not wrong, f"{pattern} over {servers} servers: {wrong[0]}"
    strays = [t for t in tree.transfers if t.rails and t.rails != (t.channel % 4,) * 2]
    assert not strays, strays[0]


def test_only_the_tree_pattern_sends_all_from_the_gpu_whose_nic_it_is():
    place = Placement(32, 4)
    relayed = {
        pattern: sum(
            t.size_bytes for t in double_tree_all_reduce(place, 1 << 20, channels=4, pattern=pattern).transfers
            if t.rails and place.gpu(t.source) != t.rails[0]
        )
        for pattern in PATTERNS
    }
    assert relayed["tree"] == 0 < relayed["balanced"] < relayed["split"], relayed


def test_a_ring_goes_through_a_server_before_it_leaves_on_the_channels_rail():
    place = Placement(12, 4)
    assert ring_order(place, 1) == [1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8]
    out = [t for t in schedule("ring", place, 4096, channels=4).transfers if t.rails and t.channel == 1]
    assert {(t.source, t.target, t.rails) for t in out} == {(0, 5, (1, 1)), (4, 9, (1, 1)), (8, 1, (1, 1))}


@pytest.mark.parametrize("name, steps_per_loop", [("ring", 14), ("reduce_scatter", 7), ("all_gather", 7)])
def test_a_ring_begins_a_loop_when_its_last_receive_of_the_loop_before_is_in(name, steps_per_loop):
    collective = schedule(name, Placement(8), 8 * 3 * 100, chunk_bytes=100)
    assert collective.steps == 3 * steps_per_loop, f"{collective.steps} steps in 3 loops of {steps_per_loop}"
    begins = [t for index, t in enumerate(collective.transfers) if index in (steps_per_loop * 8, 2 * steps_per_loop * 8)]
    assert all(len(t.after) == 1 and collective.transfers[t.after[0]].target == t.source for t in begins), begins


def test_the_channels_parity_chooses_the_tree_that_joins_the_heads():
    place = Placement(16, 2)
    joined = [t for t in schedule("nvls_tree", place, 1 << 20, channels=2).transfers if t.rails and t.reduce]
    for channel in (0, 1):
        ups = {(place.server(t.source), place.server(t.target)) for t in joined if t.channel == channel}
        assert ups == {(node, up) for node, (up, _) in double_tree_parents(8, channel).items()}, f"channel {channel}: {ups}"


@pytest.mark.parametrize(
    "size_bytes, channels, hops, want",
    [(4 << 30, 16, 13, 524288), (16 << 20, 16, 13, 65536), (1 << 20, 16, 13, 32768), (64 << 20, 16, 13, 65536)],
)
def test_a_trees_chunk_halves_until_there_are_enough_of_them(size_bytes, channels, hops, want):
    got = tree_chunk_bytes(size_bytes, channels, hops)
    assert got == want, f"{size_bytes} bytes on {channels} channels, {hops} hops: {got}, want {want}"


def test_distances_are_the_sequence_in_nccls_comment():
    assert quadratic_distances(16) == [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]


@pytest.mark.parametrize("ranks, gpus", [(2, 1), (7, 1), (16, 8), (24, 8), (30, 6), (8, 8), (640, 8)])
def test_each_round_of_nccls_order_is_a_permutation_and_all_of_them_reach_everybody(ranks, gpus):
    rounds = nccl_rounds(Placement(ranks, gpus))
    assert len(rounds) == ranks and rounds[0] == list(range(ranks))
    assert all(sorted(targets) == list(range(ranks)) for targets in rounds), "two ranks send to one in a round"
    assert all({targets[rank] for targets in rounds} == set(range(ranks)) for rank in (0, ranks - 1))


def test_a_burst_has_all_ranks_send_to_rank_0_first():
    first = {}
    for transfer in schedule("all_to_all_burst", Placement(8), 800).transfers:
        first.setdefault(transfer.source, transfer.target)
    assert first == {0: 1, **dict.fromkeys(range(1, 8), 0)}


def test_pxn_leaves_nothing_that_crosses_rails_and_an_eighth_of_the_messages():
    place, size = Placement(64, 8), 64 << 10
    off, on = (traffic(schedule(name, place, size)) for name in ("all_to_all", "all_to_all_pxn"))
    block, pairs = size // 64, 8 * 7 * 8  # of NICs on one rail in different servers
    assert (off.same_rail_bytes, off.cross_rail_bytes) == (pairs * block, 7 * pairs * block), off
    assert (on.same_rail_bytes, on.cross_rail_bytes) == (8 * pairs * block, 0), on
    assert (off.messages, on.messages, off.connections, on.connections) == (8 * pairs, pairs, 8 * pairs, pairs)
    assert on.scale_up_bytes - off.scale_up_bytes == 7 * pairs * block, (off, on)


@pytest.mark.parametrize("pxn", [False, True])
def test_uneven_dispatch_reaches_its_experts_and_repeats_with_its_seed(pxn):
    routing, place = Routing(tokens=16, token_bytes=10, experts=32, top_k=4), Placement(16, 4)
    once, again, other = (moe_dispatch(place, routing, seed=seed, pxn=pxn) for seed in (1, 1, 2))
    wrong = list(problems(once))
    assert not wrong, wrong[0]
    assert once == again and once.transfers != other.transfers


def test_a_skewed_choice_of_experts_loads_some_ranks_more_than_an_even_one():
    loads = {}
    for skew in (0.0, 1.0):
        blocks = dispatch_bytes(32, Routing(tokens=64, token_bytes=1, skew=skew), Random(6))
        assert all(64 <= sum(row) <= 64 * 8 for row in blocks), "a token goes to between 1 and top_k ranks"
        loads[skew] = max(map(sum, zip(*blocks, strict=True))) / (sum(map(sum, blocks)) / 32)
    assert loads[0.0] < 1.2 < loads[1.0], f"busiest rank over the mean: {loads}"


@pytest.mark.parametrize(
    "collective, factor",
    [("all_reduce", 2 * 7 / 8), ("reduce_scatter", 7 / 8), ("all_gather", 7 / 8), ("all_to_all", 7 / 8), ("gather", 7 / 8),
     ("scatter", 7 / 8), ("broadcast", 1), ("reduce", 1), ("send_recv", 1), ("hypercube", 1)],
)
def test_the_bus_factor_is_nccl_tests(collective, factor):
    assert bus_factor(collective, 8) == factor


def test_busbw_belongs_to_the_collective_and_not_to_the_algorithm():
    ring, tree = (schedule(name, Placement(8), 800) for name in ("ring", "tree"))
    assert ring.bus_factor == tree.bus_factor == 1.75
    assert algbw_gbyte_per_s(4_000_000_000, 0.1) == 40.0
    assert busbw_gbyte_per_s("all_reduce", 8, 4_000_000_000, 0.1) == 70.0


@pytest.mark.parametrize("call", [lambda: bus_factor("allreduce", 8), lambda: bus_factor("reduce", 0),
                                  lambda: algbw_gbyte_per_s(1, 0.0)])
def test_a_bandwidth_of_nothing_is_refused(call):
    with pytest.raises(UsageError):
        call()
