"""PSNs wrap at 2^24 without surprise; messages and interfaces get the packets and path MTU that Linux gives them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.roce.psn import PATH_MTUS_BYTES, packets_of_message, path_mtu_for, psn_add, psn_after, psn_distance

TOP = 2**24 - 1
HALF = 2**23
psns = st.integers(0, TOP)
steps = st.integers(-(2**25), 2**25)


def test_the_psn_after_the_last_is_zero():
    assert psn_add(TOP, 1) == 0
    assert psn_add(0, -1) == TOP
    assert psn_after(0, TOP)
    assert not psn_after(TOP, 0)


@given(psns, steps)
def test_add_stays_on_the_circle_and_is_undone_by_its_opposite(psn, step):
    assert 0 <= psn_add(psn, step) <= TOP
    assert psn_add(psn_add(psn, step), -step) == psn


@given(psns, psns)
def test_distance_is_what_has_to_be_added(start, end):
    assert 0 <= psn_distance(start, end) <= TOP
    assert psn_add(start, psn_distance(start, end)) == end


@given(psns, psns)
def test_of_two_psns_one_is_later_unless_equal_or_half_the_circle_apart(a, b):
    later = [psn_after(a, b), psn_after(b, a)]
    undecided = psn_distance(a, b) in (0, HALF)
    assert sum(later) == (0 if undecided else 1)


@given(psns, st.integers(1, HALF - 1))
def test_a_psn_less_than_half_the_circle_ahead_is_later(psn, ahead):
    assert psn_after(psn_add(psn, ahead), psn)
    assert not psn_after(psn, psn_add(psn, ahead))


@given(psns)
def test_exactly_half_the_circle_ahead_is_not_later(psn):
    assert not psn_after(psn_add(psn, HALF), psn)
    assert psn_after(psn_add(psn, HALF - 1), psn)


@given(st.integers(1, 2**31), st.sampled_from(PATH_MTUS_BYTES))
def test_packets_hold_the_message_and_one_fewer_would_not(nbytes, path_mtu):
    packets = packets_of_message(nbytes, path_mtu)
    assert (packets - 1) * path_mtu < nbytes <= packets * path_mtu


@pytest.mark.parametrize("path_mtu", PATH_MTUS_BYTES)
def test_an_empty_message_takes_one_packet(path_mtu):
    assert packets_of_message(0, path_mtu) == 1


@pytest.mark.parametrize(
    ("interface_mtu", "path_mtu"),
    [(352, 256), (607, 256), (608, 512), (1119, 512), (1120, 1024), (1500, 1024), (4191, 2048), (4192, 4096)],
)
def test_path_mtu_is_the_one_linux_chooses(interface_mtu, path_mtu):
    assert path_mtu_for(interface_mtu) == path_mtu


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: path_mtu_for(351), "interface MTU 351 is too small for RoCE: the smallest path MTU 256 needs 352"),
        (lambda: packets_of_message(1, 1500), "path MTU 1500 does not exist; InfiniBand has 256, 512, 1024, 2048"),
        (lambda: packets_of_message(-1, 1024), "message of -1 bytes"),
    ],
    ids=["small interface", "no such path MTU", "negative length"],
)
def test_what_cannot_be_is_refused_in_one_line(call, says):
    with pytest.raises(UsageError, match=says) as refusal:
        call()
    assert "\n" not in str(refusal.value)
