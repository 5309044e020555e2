"""Promises of the collectives: every contribution arrives exactly once in any order, in the steps and bytes they state."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest

from emu.collectives.catalogue import ALL_REDUCE, COLLECTIVES, schedule
from emu.collectives.conservation import form_problems, play, problems
from emu.collectives.placement import Placement
from emu.collectives.schedule import Schedule
from emu.collectives.traffic import scale_out_only, traffic
from emu.errors import UsageError
from tests.closed_forms import closed_form
from tests.collective_cases import BYTES, cases, placements

SOME_SIZES = (*range(2, 18), 24, 32, 40, 61, 63, 64)  # 61 is prime, 63 odd; all of them: integration/test_every_size.py
SEED = 6


def numeric(collective: Schedule, rank: int, piece: int) -> np.ndarray:
    """A rank's own numbers of a piece: any that differ between ranks, pieces and places."""
    return rank * rank + 3 * piece + np.arange(collective.pieces[piece].size_bytes)


def expected(collective: Schedule, piece: int) -> np.ndarray:
    source = collective.pieces[piece].source
    return sum(numeric(collective, rank, piece) for rank in (range(collective.ranks) if source is None else (source,)))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_rank_ends_with_every_contribution_exactly_once(name):
    for collective in cases(name, SOME_SIZES, BYTES):
        wrong = list(problems(collective))
        assert not wrong, f"{name} on {collective.placement}: {len(wrong)} faults, the first: {wrong[0]}"


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 6, 16, 61, 63])
def test_a_real_buffer_holds_the_right_sum_in_any_order_that_the_waits_allow(name, ranks):
    for collective in (schedule(name, place, BYTES) for place in placements(ranks, name)):
        state = play(collective, lambda rank, piece, c=collective: numeric(c, rank, piece), np.add, Random(SEED))
        for number, piece in enumerate(collective.pieces):
            for rank in range(ranks) if piece.target is None else (piece.target,):
                got, want = state[rank].get(number, np.zeros(0)), expected(collective, number)
                where = f"{name}, {ranks} ranks, seed {SEED}: piece {number} at rank {rank}"
                assert np.array_equal(got, want), f"{where} is {got}, not {want}"


@pytest.mark.parametrize("name", ALL_REDUCE)
@pytest.mark.parametrize("size_bytes", [1, 7, 4096, 100_003])
def test_channels_loops_and_slices_change_nothing_about_the_result(name, size_bytes):
    options = {"channels": 3, "chunk_bytes": 1500}
    gpus = 12 if name == "nvls" else 4
    collective = schedule(name, Placement(12, gpus), size_bytes, **options)
    wrong = list(problems(collective))
    assert not wrong, f"{name}, {size_bytes} bytes, {options}: {wrong[0]}"
    assert sum(piece.size_bytes for piece in collective.pieces) == size_bytes


@pytest.mark.parametrize("name", ["ring", "reduce_scatter", "all_gather"])
def test_a_ring_in_loops_of_slices_is_still_right(name):
    collective = schedule(name, Placement(6, 3), 10_007, channels=2, chunk_bytes=300, slice_bytes=128)
    wrong = list(problems(collective))
    assert not wrong, f"{name}: {wrong[0]}"
    longest = max(transfer.size_bytes for transfer in collective.transfers)
    assert 100 < longest <= 128, f"slices are up to {longest} bytes, asked for at most 128"


@pytest.mark.parametrize("name", [*ALL_REDUCE, "reduce_scatter", "all_gather", "broadcast"])
def test_no_wait_can_be_left_out(name):
    collective = schedule(name, Placement(8, 8 if name == "nvls" else 2), BYTES)
    waiting = [index for index, transfer in enumerate(collective.transfers) if transfer.after]
    unnoticed = [index for index in waiting if not list(problems(without_wait(collective, index)))]
    assert not unnoticed, f"{name}: {len(unnoticed)} of {len(waiting)} waits can go, transfer {unnoticed[0]}'s the first"


def test_a_relay_cannot_send_before_it_has_the_blocks_of_its_neighbours():
    pxn = schedule("all_to_all_pxn", Placement(8, 2), BYTES)
    relayed = [index for index, transfer in enumerate(pxn.transfers) if transfer.rails]
    unnoticed = [index for index in relayed if not list(problems(without_wait(pxn, index)))]
    assert len(relayed) == 24 and not unnoticed, f"{len(unnoticed)} of {len(relayed)} went unnoticed"


@pytest.mark.parametrize("name", ALL_REDUCE)
def test_a_schedule_that_sums_twice_or_forgets_is_found_out(name):
    collective = schedule(name, Placement(8, 8 if name == "nvls" else 2), BYTES)
    first = next(index for index, transfer in enumerate(collective.transfers) if transfer.reduce)
    transfer = collective.transfers[first]
    twice = list(problems(replace(collective, transfers=[*collective.transfers, transfer])))
    assert any("times" in line or "races" in line for line in twice), f"{name}: doubled {transfer}, reported {twice}"
    copied = list(problems(changed(collective, first, reduce=False)))
    assert copied, f"{name}: {transfer} copies over what it should add to, and nobody noticed"


def test_a_doubled_addition_is_reported_with_its_count():
    ring = schedule("ring", Placement(3), 3)
    last = ring.transfers[3]
    doubled = [*ring.transfers[:4], last, *(t._replace(after=tuple(4 if a == 3 else a + (a > 3) for a in t.after))
                                            for t in ring.transfers[4:])]
    lines = list(problems(replace(ring, transfers=doubled)))
    assert any("(2 times)" in line for line in lines), lines


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"after": (40,)}, "want one that is listed before it"),
        ({"after": (0,)}, "want at its source"),
        ({"size_bytes": 1}, "bytes but its pieces have"),
        ({"target": 99}, "want two different ranks"),
        ({"rails": None}, "leaves its server"),
    ],
)
def test_a_malformed_transfer_is_named_with_what_would_be_right(change, complaint):
    ring = schedule("ring", Placement(4), 400)
    lines = list(form_problems(changed(ring, 6, **change)))
    assert lines and lines[0].startswith("transfer 6 (2 -> ") and complaint in lines[0], lines


@pytest.mark.parametrize("name", COLLECTIVES)
def test_steps_and_bytes_are_those_of_the_closed_form(name):
    for collective in cases(name, SOME_SIZES, 64 * 63 * 61):
        place, total = collective.placement, sum(transfer.size_bytes for transfer in collective.transfers)
        steps, size = closed_form(name, place, collective.size_bytes)
        assert (collective.steps, total) == (steps, size), f"{name} on {place}: {collective.steps} steps, {total} bytes"


def nic_bytes(collective: Schedule) -> Counter[tuple[int, int]]:
    """Bytes that each NIC (server, rail) sends."""
    sent: Counter[tuple[int, int]] = Counter()
    for transfer in collective.transfers:
        if transfer.rails:
            sent[collective.placement.server(transfer.source), transfer.rails[0]] += transfer.size_bytes
    return sent


@pytest.mark.parametrize("name", ["ring", "double_tree", "nvls_tree"])
def test_as_many_channels_as_rails_load_every_rail_alike_and_stay_on_it(name):
    collective = schedule(name, Placement(32, 8), 8 << 20, channels=8)
    rails: Counter[int] = Counter()
    for (_, rail), count in nic_bytes(collective).items():
        rails[rail] += count
    assert traffic(collective).cross_rail_bytes == 0, traffic(collective)
    assert len(rails) == 8 and len(set(rails.values())) == 1, rails


def test_every_nic_of_a_ring_sends_the_same_and_a_server_sends_what_a_rank_does():
    size = 8 << 20
    sent = nic_bytes(schedule("ring", Placement(64, 8), size, channels=8))
    want = 2 * 63 * size // 64 // 8
    assert len(sent) == 64 and set(sent.values()) == {want}, f"{set(sent.values())} bytes a NIC, want {want}"


def test_one_tree_loads_an_inner_node_with_three_buffers_and_two_trees_load_nobody_with_more_than_two():
    size = 1 << 20
    received = {name: Counter() for name in ("tree", "double_tree")}
    for name, count in received.items():
        for transfer in schedule(name, Placement(32), size).transfers:
            count[transfer.target] += transfer.size_bytes
    assert max(received["tree"].values()) == 3 * size, received["tree"]
    assert max(received["double_tree"].values()) <= 2 * size, received["double_tree"]


@pytest.mark.parametrize("servers, gpus", list(product([1, 2, 5], [1, 3, 8]))[1:])
@pytest.mark.parametrize("name", ["ring", "reduce_scatter", "all_gather", "tree", "double_tree"])
def test_a_collective_made_without_its_scale_up_hops_is_the_whole_one_without_them(name, servers, gpus):
    options = {"channels": 3, "chunk_bytes": 500} | ({} if "tree" in name else {"slice_bytes": 200})
    place = Placement(servers * gpus, gpus)
    whole = scale_out_only(schedule(name, place, 20_011, **options))
    made = schedule(name, place, 20_011, only_scale_out=True, **options)
    assert list(made.transfers) == list(whole.transfers)
    assert made.scale_up_elided and not list(form_problems(made))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_without_scale_up_hops_a_wait_is_for_an_arrival_at_the_same_server(name):
    place = Placement(8, 8) if name == "nvls" else Placement(24, 4)
    whole = schedule(name, place, 5000)
    bare = scale_out_only(whole)
    wrong = list(form_problems(bare))
    assert not wrong, f"{name}: {wrong[0]}"
    assert traffic(bare).messages == traffic(whole).messages == len(bare.transfers)
    assert all(transfer.link == "scale_out" for transfer in bare.transfers)
    with pytest.raises(UsageError, match="scale-up transfers are left out"):
        list(problems(bare))


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("size_bytes", [1, 3])
def test_fewer_bytes_than_ranks_make_no_empty_transfer(name, size_bytes):
    place = Placement(8, 8) if name == "nvls" else Placement(8, 4)
    collective = schedule(name, place, size_bytes)
    assert all(transfer.size_bytes > 0 for transfer in collective.transfers)
    assert not list(problems(collective))


@pytest.mark.parametrize(
    "make, complaint",
    [
        (lambda: schedule("rign", Placement(4), 1), "did you mean 'ring'"),
        (lambda: Placement(1), "want at least 2"),
        (lambda: Placement(10, 4), "want a multiple, or one of 1, 2, 5, 10"),
        (lambda: schedule("nvls", Placement(16, 8), 1), "want nvls_tree"),
        (lambda: schedule("nvls", Placement(8, 8, scale_up=False), 1), "scale_up=True"),
        (lambda: schedule("ring", Placement(4), 0), "size_bytes=0; want at least 1"),
        (lambda: schedule("ring", Placement(4), 9, channels=0), "channels=0; want at least 1"),
        (lambda: schedule("double_tree", Placement(4), 9, pattern="ballanced"), "did you mean 'balanced'"),
        (lambda: schedule("all_to_all", Placement(4), 9, order="bursts"), "did you mean 'burst'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_with_what_would(make, complaint):
    with pytest.raises(UsageError) as refusal:
        make()
    assert complaint in str(refusal.value) and "\n" not in str(refusal.value)


def without_wait(collective: Schedule, index: int) -> Schedule:
    return changed(collective, index, after=())


def changed(collective: Schedule, index: int, **change: object) -> Schedule:
    transfers = list(collective.transfers)
    transfers[index] = transfers[index]._replace(**change)
    return replace(collective, transfers=transfers)
