"""Promises about reordering: the RFCs' small examples, order and its opposite, and duplicates that count nowhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.measure.reorder import reordering

permutations = st.integers(1, 40).flatmap(lambda count: st.permutations(range(count)))
traces = st.lists(st.integers(0, 30), min_size=1, max_size=60)  # with duplicates and losses


@pytest.mark.parametrize(
    "arrivals, extents",
    [
        ([1, 2, 3, 5, 6, 7, 8, 4, 9, 10], (4,)),
        ([1, 2, 3, 4, 7, 5, 6, 8, 9, 10], (1, 2)),
        ([1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11], (4, 5, 6)),
    ],
    ids=["packet 4 late", "packets 5 and 6 late", "packets 4, 5 and 6 late"],
)
def test_extents_are_those_of_rfc_4737_section_7(arrivals, extents):
    """Its three examples (arrival orders by memory)."""
    measured = reordering(arrivals, 100)
    assert measured.extents == extents
    assert measured.reordered_ratio == len(extents) / len(arrivals)
    assert measured.extent_max == max(extents)


def test_buffer_occupancy_is_that_of_rfc_5236s_example():
    """1 4 2 5 3 6 7 8 holds 0 1 1 2 0 0 0 0 packets (by memory)."""
    measured = reordering([1, 4, 2, 5, 3, 6, 7, 8], 1000)
    assert measured.buffer_density == {0: 5 / 8, 1: 2 / 8, 2: 1 / 8}
    assert (measured.buffer_packets, measured.buffer_bytes) == (2, 2000)


def test_bytes_held_are_those_of_the_packets_held():
    """Packet 0 is last: 1 and 2 wait, the largest possible buffer, and 3 waits for nobody."""
    assert reordering([1, 2, 0, 3], [500, 70, 9000, 9000]).buffer_bytes == 570
    assert reordering([1, 1, 0], [500, 70, 9000]).buffer_bytes == 500, "the duplicate is not kept"


@given(st.integers(1, 50), st.integers(1, 9000))
def test_in_order_nothing_is_reordered_and_nothing_held(count, size):
    measured = reordering(range(count), size)
    assert (measured.reordered_ratio, measured.extent_max, measured.buffer_bytes) == (0.0, 0, 0)
    assert measured.buffer_density == {0: 1.0}


@given(st.integers(2, 50), st.integers(1, 9000))
def test_in_reverse_all_but_the_first_are_reordered_and_all_but_the_last_held(count, size):
    measured = reordering(range(count - 1, -1, -1), size)
    assert measured.reordered_ratio == (count - 1) / count
    assert measured.extents == tuple(range(1, count))
    assert (measured.buffer_packets, measured.buffer_bytes) == (count - 1, (count - 1) * size)


@given(permutations)
def test_a_packet_is_reordered_exactly_if_a_larger_number_came_before(numbers):
    """By the definition, quadratic."""
    before = [[j for j in range(i) if numbers[j] > numbers[i]] for i in range(len(numbers))]
    expected = tuple(i - earlier[0] for i, earlier in enumerate(before) if earlier)
    assert reordering(numbers, 1).extents == expected


@given(permutations)
def test_what_is_held_is_what_came_before_something_smaller(numbers):
    """By the definition: after an arrival, those that came and for which a smaller one is still to come."""
    held = [sum(min(numbers[i + 1 :], default=n + 1) < n for n in numbers[: i + 1]) for i in range(len(numbers))]
    measured = reordering(numbers, 10)
    assert measured.buffer_packets == max(held)
    assert measured.buffer_bytes == 10 * max(held)
    assert measured.buffer_density == {k: held.count(k) / len(held) for k in sorted(set(held))}


@given(traces)
def test_duplicates_change_only_their_own_count(numbers):
    first = list(dict.fromkeys(numbers))
    whole, once = reordering(numbers, 7), reordering(first, 7)
    assert whole.duplicate_packets == len(numbers) - len(first)
    assert replace(whole, duplicate_packets=0) == once


@given(permutations, st.integers(2, 9), st.integers(0, 1000))
def test_a_gap_that_is_never_filled_is_no_reordering(numbers, step, start):
    assert reordering([start + step * number for number in numbers], 3) == reordering(numbers, 3)


def test_metrics_carry_the_contracts_names():
    metrics = {metric.name: (metric.value, metric.unit) for metric in reordering([1, 0], 1024).metrics()}
    assert metrics["reordered_ratio"] == (0.5, "ratio")
    assert metrics["reorder_extent_max"] == (1, "packets")
    assert metrics["reassembly_buffer_bytes"] == (1024, "bytes")


@pytest.mark.parametrize(
    "arrivals, sizes, says", [([], 1, "0 arrivals and 0 sizes"), ([1, 2], [9], "2 arrivals and 1 sizes")]
)
def test_a_trace_without_packets_or_sizes_is_refused_in_one_line(arrivals, sizes, says):
    with pytest.raises(UsageError) as error:
        reordering(arrivals, sizes)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_long_trace_with_every_64_in_reverse_holds_63_at_most():
    """100,000 packets: work that grew with their square would take minutes."""
    measured = reordering([number ^ 63 for number in range(1600 * 64)], 1024)
    assert measured.buffer_packets == 63
    assert measured.reordered_ratio == pytest.approx(63 / 64)
