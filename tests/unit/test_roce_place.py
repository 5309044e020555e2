"""Packets that carry their own address fill the buffer with the same bytes in any order of arrival."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.roce.flow import Flow
from emu.roce.headers import BTH, RETH
from emu.roce.packets import ack, cnp, roce_frame, write_frames
from emu.roce.place import Outcome, Placement

FLOW = Flow(
    src_mac="02:00:00:00:00:01",
    dst_mac="02:00:00:00:01:01",
    src_ip="10.0.0.1",
    dst_ip="10.0.1.1",
    src_qpn=0x11,
    dst_qpn=0x22,
)
VA = 0x1000
# st.binary alone almost never grows past one packet.
payloads = st.builds(lambda nbytes, seed: random.Random(seed).randbytes(nbytes), st.integers(0, 4000), st.integers())
MESSAGE = bytes(range(1, 251)) * 10 + b"odd"


def frames_of(message=MESSAGE, va=VA):
    return write_frames(FLOW, va=va, payload=message, path_mtu=256)


@settings(deadline=None, max_examples=50)
@given(payload=payloads, path_mtu=st.sampled_from([256, 512]), data=st.data())
def test_any_order_and_any_duplicates_give_identical_bytes(payload, path_mtu, data):
    frames = write_frames(FLOW, va=VA, payload=payload, path_mtu=path_mtu)
    again = data.draw(st.lists(st.sampled_from(frames), max_size=5)) if payload else []
    arrivals = data.draw(st.permutations(frames + again))
    placement = Placement(len(payload), base_va=VA)
    for frame in arrivals:
        placement.accept(frame)
    assert bytes(placement.buffer) == payload
    assert placement.complete
    assert placement.outcomes == {Outcome.PLACED: len(frames)} | ({Outcome.DUPLICATE: len(again)} if again else {})


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_missing_ranges_are_exactly_the_packets_that_did_not_arrive(data):
    frames = frames_of()
    lost = data.draw(st.sets(st.integers(0, len(frames) - 1)))
    placement = Placement(len(MESSAGE), base_va=VA)
    for index, frame in enumerate(frames):
        if index not in lost:
            placement.accept(frame)
    missing = {va + i for va, nbytes in placement.missing() for i in range(nbytes)}
    expected = {VA + i for i in range(len(MESSAGE)) if i // 256 in lost}
    assert missing == expected
    assert placement.complete == (not lost)


def test_neighbouring_losses_are_reported_as_one_range():
    frames = frames_of()
    placement = Placement(len(MESSAGE), base_va=VA)
    for frame in frames[:2] + frames[4:]:
        placement.accept(frame)
    assert placement.missing() == [(VA + 2 * 256, 2 * 256)]


def test_a_corrupted_payload_is_counted_and_not_placed():
    frame = bytearray(frames_of()[0])
    frame[-20] ^= 1
    placement = Placement(len(MESSAGE), base_va=VA)
    assert placement.accept(bytes(frame)) is Outcome.CORRUPTED
    assert placement.buffer == bytes(len(MESSAGE))


def test_a_ce_mark_on_the_way_does_not_corrupt():
    frame = bytearray(frames_of()[0])
    frame[15] |= 0b11
    assert Placement(len(MESSAGE), base_va=VA).accept(bytes(frame)) is Outcome.PLACED


@pytest.mark.parametrize("va", [VA - 1, VA + 1, VA + 10_000, 0, 2**63])
def test_a_write_outside_the_buffer_is_counted_and_not_placed(va):
    placement = Placement(256, base_va=VA)
    (frame,) = write_frames(FLOW, va=va, payload=b"\xff" * 256, path_mtu=256)
    assert placement.accept(frame) is Outcome.OUT_OF_BOUNDS
    assert placement.buffer == bytes(256)


def test_a_write_that_just_fits_is_placed():
    placement = Placement(256, base_va=VA)
    (frame,) = write_frames(FLOW, va=VA, payload=b"\xff" * 256, path_mtu=256)
    assert placement.accept(frame) is Outcome.PLACED
    assert placement.buffer == b"\xff" * 256


@pytest.mark.parametrize(
    "frame",
    [
        ack(FLOW, psn=1, msn=1),
        cnp(FLOW),
        roce_frame(FLOW, BTH(opcode=0x07), b"middle of a write, no address"),
        roce_frame(FLOW, BTH(opcode=0x0C) / RETH(va=VA, dmalen=16)),
        roce_frame(FLOW, BTH(opcode=0x0A), b"cut RETH"),
    ],
    ids=["ack", "cnp", "write middle", "read request", "no room for a RETH"],
)
def test_what_carries_no_address_is_counted_and_not_placed(frame):
    placement = Placement(64, base_va=VA)
    assert placement.accept(frame) is Outcome.NOT_A_WRITE
    assert placement.missing() == [(VA, 64)]


def test_duplicates_do_not_write_memory_again():
    placement = Placement(256, base_va=VA)
    placement.accept(write_frames(FLOW, va=VA, payload=b"a" * 256, path_mtu=256)[0])
    late = write_frames(FLOW, va=VA, payload=b"b" * 256, path_mtu=256)[0]
    assert placement.accept(late) is Outcome.DUPLICATE
    assert placement.buffer == b"a" * 256


def test_a_negative_buffer_is_refused_in_one_line():
    with pytest.raises(UsageError, match="buffer of -1 bytes: a size is 0 or more"):
        Placement(-1)
