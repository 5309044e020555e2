"""Promises about RED in a switch's place: the formula is what the kernel does, and the ramp is followed or refused.

The kernel here is red_action() of linux/include/net/red.h in Python, with a seeded generator for its random numbers.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.fabric import queue, red_law
from emu.scale import Scale
from emu.topology.model import Port
from emu.topology.plan import PortPlan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.units import gbps

U32 = 1 << 32
PACKETS = 40_000
FRAME_BYTES = 4174
NOKIA = EcnProfile(kmin_bytes=2_000_000, kmax_bytes=10_000_000, pmax=0.05)


def kernel_marks(above_kmin_bytes: int, max_p: int, ramp_bytes: int, packets: int, rng: random.Random) -> int:
    """How many of `packets` red_action() marks at a queue held there: BETWEEN_TRESH, Wlog = 0."""
    reciprocal = max_p // ramp_bytes
    count, threshold, marks = -1, 0, 0
    for _ in range(packets):
        count += 1
        if not count:
            threshold = rng.getrandbits(32) // reciprocal
        elif above_kmin_bytes * count >= threshold:
            count, threshold, marks = 0, rng.getrandbits(32) // reciprocal, marks + 1
    return marks


def setting_for(ecn: EcnProfile, use_red: bool = True, **changes) -> queue.QueueSetting:
    fields = {"rate_bps": gbps(400), "delay_ns": 0, "queue": QueueProfile(buffer_bytes=1 << 26, ecn=ecn)}
    port = PortPlan(
        port=Port("leaf0", "down0"),
        peer=Port("srv0", "rail0"),
        ifindex=2,
        mac="02:52:00:00:00:02",
        address="10.0.0.0",
        peer_address="10.0.0.1",
        peer_mac="02:52:00:00:00:03",
        **fields | changes,
    )
    return queue.setting(port, Scale(dilation=100), FRAME_BYTES, use_red)


@pytest.mark.parametrize("share_of_ramp", [0.05, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("pmax", [0.02, 0.05, 0.2, 0.35])
def test_the_formula_gives_the_share_the_kernels_algorithm_marks(share_of_ramp, pmax):
    """Within 5 standard errors, from the simulated gaps: their variance is below that of independent coin flips."""
    ramp = 500_000
    max_p = red_law.fit(EcnProfile(kmin_bytes=100_000, kmax_bytes=100_000 + ramp, pmax=pmax)).max_p
    above = int(ramp * share_of_ramp)
    want = red_law.marked_share(above, U32 / (max_p // ramp))
    got = kernel_marks(above, max_p, ramp, PACKETS, random.Random(f"{pmax} {share_of_ramp}")) / PACKETS
    band = 5 * (want * (1 - want) / PACKETS) ** 0.5
    assert abs(got - want) <= band, f"formula {want:.5f}, kernel's algorithm {got:.5f}, band ±{band:.5f}"


@pytest.mark.parametrize(
    "ecn",
    [
        NOKIA,
        EcnProfile(kmin_bytes=1 << 20, kmax_bytes=2 << 20, pmax=0.05),
        EcnProfile(kmin_bytes=0, kmax_bytes=150_000, pmax=0.01),
        EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.2),
        EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.35),
    ],
    ids=["nokia 2-10 MB 5 %", "1-2 MiB 5 %", "0-150 kB 1 %", "100-400 kB 20 %", "100-400 kB 35 %"],
)
def test_a_fitted_ramp_stays_within_its_stated_deviation_in_the_kernels_algorithm(ecn):
    fit, ramp = red_law.fit(ecn), ecn.kmax_bytes - ecn.kmin_bytes
    assert fit.deviation <= red_law.limit(ecn)
    for share in (0.1, 0.35, 0.6, 0.85):
        above = int(ramp * share)
        got = kernel_marks(above, fit.max_p, ramp, PACKETS, random.Random(f"{ecn} {share}")) / PACKETS
        want = ecn.probability(ecn.kmin_bytes + above)
        allowed = fit.deviation + 5 * (want * (1 - want) / PACKETS) ** 0.5
        assert abs(got - want) <= allowed, (
            f"at {share:.0%} of the ramp: want {want:.4f}, marked {got:.4f} (±{allowed:.4f})"
        )


def test_red_told_pmax_as_tc_would_tell_it_marks_far_more_than_pmax():
    """Why there is a fit at all: 20 % asked in the plain way gives a third."""
    ramp = 300_000
    plain = kernel_marks(ramp - 1, round(0.2 * U32), ramp, PACKETS, random.Random(1)) / PACKETS
    assert 0.30 < plain < 0.36, f"marked {plain:.3f}"


@given(st.integers(0, 10**7), st.integers(1000, 10**7), st.floats(0.01, 1))
def test_the_fitted_max_p_is_a_whole_multiple_of_the_ramp_and_fits_32_bits(kmin, ramp, pmax):
    fit = red_law.fit(EcnProfile(kmin_bytes=kmin, kmax_bytes=kmin + ramp, pmax=pmax))
    assert 0 < fit.max_p < U32
    assert fit.max_p % ramp == 0
    assert fit.deviation >= 0


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1, 4e9))
def test_a_longer_queue_marks_at_least_as_much_and_never_more_than_everything(above, more, spread):
    low, high = red_law.marked_share(above, spread), red_law.marked_share(above + more, spread)
    assert 0 < low <= high * (1 + 1e-9)
    assert high <= 1 + 1e-9


def test_at_or_below_kmin_nothing_is_marked():
    assert red_law.marked_share(0, 1e6) == red_law.marked_share(-5, 1e6) == 0


def test_a_step_needs_no_fit():
    assert red_law.fit(EcnProfile(kmin_bytes=1000, kmax_bytes=1000, pmax=1)) == red_law.RedFit(
        max_p=U32 - 1, deviation=0.0
    )


@pytest.mark.parametrize(("pmax", "ok"), [(0.05, True), (0.35, True), (0.8, False), (1.0, False)])
def test_a_ramp_that_red_cannot_follow_is_refused_with_what_would_fit(pmax, ok):
    steep = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=pmax)
    if ok:
        assert setting_for(steep).red.deviation <= red_law.limit(steep)
        return
    with pytest.raises(UsageError) as refused:
        setting_for(steep)
    message = str(refused.value)
    assert f"pmax={pmax:g}" in message and "use a pmax up to 0.35" in message and "or a step" in message, message
    assert "\n" not in message, message


@pytest.mark.parametrize(("ramp_bytes", "ok"), [(4_000_000, True), (50_000_000, False)])
def test_a_small_pmax_is_refused_on_a_ramp_so_long_that_red_rounds_it_away(ramp_bytes, ok):
    gentle = EcnProfile(kmin_bytes=100_000, kmax_bytes=100_000 + ramp_bytes, pmax=0.01)
    if ok:
        assert setting_for(gentle, queue=QueueProfile(buffer_bytes=1 << 28, ecn=gentle)).red.deviation <= 0.001
        return
    with pytest.raises(UsageError, match="pmax=0.01 .*limit 0.0010"):
        setting_for(gentle, queue=QueueProfile(buffer_bytes=1 << 28, ecn=gentle))


def test_a_buffer_that_holds_no_frame_is_refused():
    with pytest.raises(UsageError, match="buffer_bytes=1000 holds no frame of [0-9]+ bytes"):
        setting_for(NOKIA, use_red=False, queue=QueueProfile(buffer_bytes=1000))


def test_the_bpf_marker_takes_the_steep_ramp_that_red_refuses():
    assert setting_for(EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=1), use_red=False).red is None


@pytest.mark.parametrize("use_red", [True, False])
def test_a_dilation_that_leaves_a_link_no_byte_a_second_is_refused(use_red):
    with pytest.raises(UsageError, match="leaf0:down0.*dilation=100.*smaller dilation"):
        setting_for(NOKIA, use_red, rate_bps=100)


@pytest.mark.parametrize(("buffer_bytes", "ok"), [((1 << 32) - 1, True), (1 << 32, False)])
def test_a_buffer_the_kernels_32_bits_cannot_hold_is_refused(buffer_bytes, ok):
    profile = QueueProfile(buffer_bytes=buffer_bytes, ecn=NOKIA)
    if ok:
        assert setting_for(NOKIA, queue=profile).limit_bytes == buffer_bytes
        return
    with pytest.raises(UsageError, match=f"buffer_bytes={buffer_bytes}.*4 GiB"):
        setting_for(NOKIA, queue=profile)


@pytest.mark.parametrize("delay_ns", [0, 1, 4, 500, 1_000])
def test_a_links_delay_is_dilated_to_the_nanosecond(delay_ns):
    assert setting_for(NOKIA, delay_ns=delay_ns).delay_ns == 100 * delay_ns
