"""Promises about the band that marks must fall into, and about depth quantiles."""

from __future__ import annotations

import random

import pytest

from emu.measure import marking
from emu.measure.depth import quantile
from emu.topology.queue_profile import EcnProfile

LAW = EcnProfile(kmin_bytes=100_000, kmax_bytes=200_000, pmax=0.2)


def test_an_honest_coin_falls_into_the_band_and_one_of_twice_the_probability_does_not():
    chances = [0.1] * 4000
    band = marking.band(chances, 0)
    rng = random.Random(5)
    inside = sum(band.holds(sum(rng.random() < p for p in chances)) for _ in range(60))
    assert inside >= 58, f"{inside} of 60 honest counts in {band}"
    assert not band.holds(sum(rng.random() < 2 * p for p in chances))


def test_what_is_certain_has_no_band():
    assert marking.band([0.0] * 50 + [1.0] * 7, 0.02) == marking.Band(7.0, 7.0, 7.0)


def test_a_known_deviation_widens_the_band_by_its_share_of_the_packets_on_the_ramp():
    plain, widened = marking.band([0.1] * 100 + [0.0] * 100, 0), marking.band([0.1] * 100 + [0.0] * 100, 0.05)
    assert widened.high - plain.high == pytest.approx(5)


def test_a_growing_queue_is_counted_at_the_depths_it_passes():
    chances = marking.found_while_held(LAW, 1000, 10, 150_000, [150_000] * 5)
    assert len(chances) == 1010 and chances[-10:] == [pytest.approx(0.1)] * 10
    ramp = sum(chances[:1000])  # P is 0 up to 100 kB and rises to 0.1 at 150 kB: a third of the packets at 0.05 on average
    assert ramp == pytest.approx(1000 / 3 * 0.05, rel=0.01), ramp


def test_buckets_weigh_every_packet_with_the_law_at_its_depth():
    found = [0] * 64
    found[9], found[15], found[40] = 5, 20, 3  # of 10 kB: 90 to 100 kB, 150 to 160 kB, beyond Kmax
    chances = marking.found_in_buckets(LAW, found, 10_000)
    assert chances[:5] == [0.0] * 5 and chances[5:25] == [pytest.approx(0.11)] * 20 and chances[25:] == [1.0] * 3


@pytest.mark.parametrize(("share", "want"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_a_value_that_was_seen(share, want):
    assert quantile(list(range(100, 0, -1)), share) == want
    assert quantile([], share) == 0
