"""Promises about dilation: one factor, rates down, times up, bytes untouched, and never a rate of nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu import scale
from emu.errors import UsageError
from emu.scale import Scale
from emu.units import gbps

FRAME_BYTES = 4174
rates = st.integers(gbps(1), gbps(1600))
dilations = st.sampled_from([1, 2, 3, 5, 7, 100, 200, 5000, 100_000])


@pytest.mark.parametrize("dilation", [0, -1])
def test_a_dilation_below_1_is_refused(dilation):
    with pytest.raises(UsageError, match=f"dilation={dilation}; want a whole number from 1"):
        Scale(dilation=dilation)


@given(rates, dilations)
def test_the_kernel_rate_is_the_nominal_over_d_to_the_last_whole_byte(rate_bps, dilation):
    kernel_bps = Scale(dilation=dilation).kernel_bps(rate_bps)
    assert kernel_bps % 8 == 0
    assert 0 <= rate_bps - kernel_bps * dilation < 8 * dilation


@given(st.integers(0, 10**12), dilations)
def test_times_go_to_the_kernel_and_back_unchanged(fabric_ns, dilation):
    scaled = Scale(dilation=dilation)
    assert scaled.kernel_ns(fabric_ns) == fabric_ns * dilation
    assert scaled.fabric_ns(scaled.kernel_ns(fabric_ns)) == fabric_ns


@given(rates, dilations)
def test_without_late_timers_a_burst_is_one_frame(rate_bps, dilation):
    exact = Scale(dilation=dilation)
    assert exact.exact
    assert exact.burst_bytes(rate_bps, FRAME_BYTES) == FRAME_BYTES


@pytest.mark.parametrize(
    ("rate_bps", "dilation", "catch_up_ns", "burst_bytes"),
    [
        (gbps(400), 1, 100_000, 5_000_000 + FRAME_BYTES),  # 50 GB/s for 100 us
        (gbps(400), 200, 100_000, 25_000 + FRAME_BYTES),  # a 200th of it
        (gbps(1), 100_000, 100_000, FRAME_BYTES),  # less than a byte late
    ],
)
def test_a_burst_makes_up_for_a_late_timer_at_the_kernels_rate(rate_bps, dilation, catch_up_ns, burst_bytes):
    late = Scale(dilation=dilation, catch_up_ns=catch_up_ns)
    assert not late.exact
    assert late.burst_bytes(rate_bps, FRAME_BYTES) == burst_bytes


@pytest.mark.parametrize(
    ("asked", "given_"),
    [
        (0.1, 1),
        (1, 1),
        (1.01, 2),
        (2, 2),
        (2.1, 5),
        (5, 5),
        (5.1, 10),
        (10, 10),
        (10.1, 20),
        (99, 100),
        (100, 100),
        (101, 200),
        (999_999, 1_000_000),
    ],
)
def test_dilations_are_rounded_up_to_figures_people_can_divide_by(asked, given_):
    assert scale.at_least(asked) == given_


@given(st.floats(0.01, 1e9))
def test_rounding_up_never_rounds_down_and_never_by_more_than_two_and_a_half(dilation):
    got = scale.at_least(dilation)
    assert dilation * (1 - 1e-9) <= got <= max(1, 2.5 * dilation * (1 + 1e-9))


@pytest.mark.parametrize("rate_gbps", [1, 40, 100, 400, 800, 1600])
def test_on_the_virtual_clock_a_frame_lasts_five_microseconds_or_more_at_the_fastest_link(rate_gbps):
    dilation = scale.for_virtual_clock(gbps(rate_gbps), FRAME_BYTES)
    frame_ns = FRAME_BYTES * 8e9 / Scale(dilation=dilation).kernel_bps(gbps(rate_gbps))
    assert frame_ns >= scale.PACKET_MIN_NS * (1 - 1e-6)
    assert dilation == 1 or frame_ns <= 2.5 * scale.PACKET_MIN_NS, f"D={dilation}: a frame lasts {frame_ns:.0f} ns"


@pytest.mark.parametrize(
    ("offered", "capacity", "head_room", "dilation"), [(1e6, 1e6, 0.5, 2), (1e8, 1e6, 0.25, 500), (10, 1e6, 0.5, 1)]
)
def test_on_the_real_clock_the_offered_packet_hops_fit_the_share_of_the_hosts_capacity(
    offered, capacity, head_room, dilation
):
    got = scale.for_real_clock(offered, capacity, head_room)
    assert got == dilation
    assert offered / got <= capacity * head_room
