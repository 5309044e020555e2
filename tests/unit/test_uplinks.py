"""Promises about uplink evenness: the ratios by hand; hashing's closed form against enumeration and the table."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.measure.hashing import (
    NEGLIGIBLE,
    busiest_distribution,
    efficiency_quantile,
    expected_efficiency,
    expected_idle_share,
)
from emu.measure.uplinks import Spread

TRIALS = 2000  # of the table below
# domain facts 6.2: uplinks -> (mean, 5th percentile) of the efficiency for 1, 2, 4, 8, 16, 32 flows per uplink
FLOWS_PER_UPLINK = (1, 2, 4, 8, 16, 32)
TABLE = {
    4: ((0.51, 0.33), (0.59, 0.40), (0.67, 0.50), (0.74, 0.57), (0.80, 0.67), (0.85, 0.74)),
    8: ((0.41, 0.25), (0.50, 0.33), (0.59, 0.44), (0.67, 0.53), (0.74, 0.62), (0.80, 0.70)),
    16: ((0.35, 0.25), (0.43, 0.29), (0.52, 0.40), (0.61, 0.50), (0.69, 0.59), (0.76, 0.67)),
    64: ((0.26, 0.20), (0.34, 0.25), (0.43, 0.33), (0.53, 0.44), (0.62, 0.53), (0.70, 0.62)),
}
CELLS = [
    pytest.param(uplinks, uplinks * per_uplink, *cell, id=f"{uplinks}x{per_uplink}")
    for uplinks, row in TABLE.items()
    for per_uplink, cell in zip(FLOWS_PER_UPLINK, row, strict=True)
]
ROUNDING = 0.005  # the table has two digits


def deviation(uplinks: int, flows: int) -> float:
    """Standard deviation of the efficiency over hashings."""
    mean = expected_efficiency(uplinks, flows)
    square = sum(p * (flows / uplinks / busiest) ** 2 for busiest, p in busiest_distribution(uplinks, flows))
    return max(0.0, square - mean**2) ** 0.5


@pytest.mark.parametrize("uplinks, flows, mean, low", CELLS)
def test_the_closed_form_agrees_with_the_simulated_table(uplinks, flows, mean, low):
    """Within rounding and four standard errors of 2000 trials, for the mean and for the 5th percentile."""
    exact = expected_efficiency(uplinks, flows)
    allowed = ROUNDING + 4 * deviation(uplinks, flows) / TRIALS**0.5
    assert abs(exact - mean) <= allowed, f"exact {exact:.4f}, table {mean}, allowed ±{allowed:.4f}"
    error = 4 * (0.05 * 0.95 / TRIALS) ** 0.5
    least, most = (efficiency_quantile(uplinks, flows, share) for share in (0.05 - error, 0.05 + error))
    assert least - ROUNDING <= low <= most + ROUNDING, f"5 % quantile: table {low}, exact {least:.4f} to {most:.4f}"


@pytest.mark.parametrize("uplinks, flows", [(1, 1), (1, 5), (2, 1), (2, 7), (3, 5), (4, 4), (5, 5), (6, 3)])
def test_the_closed_form_is_what_counting_every_hashing_gives(uplinks, flows):
    counted, idle = Counter(), 0
    for hashing in product(range(uplinks), repeat=flows):
        used = Counter(hashing)
        counted[max(used.values())] += 1
        idle += uplinks - len(used)
    total = uplinks**flows
    got = dict(busiest_distribution(uplinks, flows))
    assert got == pytest.approx({busiest: times / total for busiest, times in counted.items()} | _zeros(got, counted))
    assert expected_idle_share(uplinks, flows) == pytest.approx(float(Fraction(idle, total * uplinks)))
    mean = sum(Fraction(times * flows, total * uplinks * busiest) for busiest, times in counted.items())
    assert expected_efficiency(uplinks, flows) == pytest.approx(float(mean))


def _zeros(got, counted):
    """Values that the distribution lists and no hashing has."""
    return {busiest: 0.0 for busiest in got if busiest not in counted}


@given(st.integers(1, 20), st.integers(1, 60))
def test_the_distribution_is_one_whatever_the_numbers(uplinks, flows):
    distribution = busiest_distribution(uplinks, flows)
    total = sum(chance for _, chance in distribution)
    assert 1 - NEGLIGIBLE <= total <= 1 + NEGLIGIBLE, f"probabilities add up to {total}"
    assert min(chance for _, chance in distribution) >= -1e-12
    assert 1 / uplinks <= expected_efficiency(uplinks, flows) + NEGLIGIBLE <= 1 + 2 * NEGLIGIBLE


def test_a_seeded_simulation_of_flows_that_do_not_divide_evenly_agrees():
    """150 flows on 64 uplinks, 2000 hashings: idle share and efficiency within four standard errors."""
    rng = random.Random(3)
    spreads = []
    for _ in range(TRIALS):
        used = Counter(rng.randrange(64) for _ in range(150))
        spreads.append(Spread([used[uplink] for uplink in range(64)]))
    simulated = sum(each.efficiency for each in spreads) / TRIALS
    allowed = 4 * deviation(64, 150) / TRIALS**0.5
    exact = expected_efficiency(64, 150)
    assert abs(simulated - exact) <= allowed, f"simulated {simulated:.4f}, exact {exact:.4f}, allowed ±{allowed:.4f}"
    idle = sum(each.idle_share for each in spreads) / TRIALS
    assert idle == pytest.approx(expected_idle_share(64, 150), abs=0.004), f"{idle:.4f}"


def test_more_flows_per_uplink_lose_less_and_more_uplinks_lose_more():
    assert expected_efficiency(16, 16) < expected_efficiency(16, 64) < expected_efficiency(16, 512) < 1
    assert expected_efficiency(4, 16) > expected_efficiency(8, 32) > expected_efficiency(64, 256)


def test_the_ratios_are_those_computed_by_hand():
    uneven = Spread([300, 100, 0, 0])
    assert (uneven.max_over_mean, uneven.idle_share, uneven.efficiency) == (3.0, 0.5, pytest.approx(1 / 3))
    assert uneven.lost_share == pytest.approx(2 / 3)
    even = Spread([7, 7, 7])
    assert (even.max_over_mean, even.idle_share, even.lost_share) == (1.0, 0.0, 0.0)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=64).filter(any))
def test_the_ratios_stay_in_their_range(uplink_bytes):
    one = Spread(uplink_bytes)
    assert 1 - 1e-9 <= one.max_over_mean <= len(uplink_bytes) + 1e-9
    assert one.max_over_mean * (1 - one.lost_share) == pytest.approx(1)
    assert one.idle_share <= one.lost_share + 1e-9, "an idle uplink is lost bandwidth"


def test_metrics_carry_the_contracts_names_and_their_number_of_uplinks():
    metrics = {metric.name: metric for metric in Spread([1, 3]).metrics()}
    assert metrics["uplink_max_over_mean"].value == 1.5
    assert metrics["uplink_lost_share"].value == pytest.approx(1 / 3)
    assert "2 uplinks" in metrics["uplink_idle_share"].note


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Spread([0, 0, 0]), "no byte on any of 3 uplinks"),
        (lambda: Spread([]), "no byte on any of 0 uplinks"),
        (lambda: expected_idle_share(0, 4), "4 flows on 0 uplinks; want at least 1 of each"),
        (lambda: expected_efficiency(4, 0), "0 flows on 4 uplinks"),
    ],
    ids=["no bytes", "no uplinks", "zero uplinks", "zero flows"],
)
def test_a_question_without_an_answer_is_refused_in_one_line(make, says):
    with pytest.raises(UsageError) as error:
        make()
    assert says in str(error.value) and "\n" not in str(error.value), str(error.value)
