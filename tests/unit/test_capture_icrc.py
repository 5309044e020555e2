"""A capture fills in the iCRC where the NIC left it out, and nowhere else."""

import pytest

from emu.report.capture import filled_in
from emu.roce.icrc import verify

# RC WRITE ONLY with 5 bytes of payload and 3 of pad; its iCRC is 5b3e4395 (test_roce_icrc.py has the source)
FRAME = bytes.fromhex(
    "0200000001010200000000010800456a0044000040004011253e0a0000010a000101c00112b7003000000a30ffff00123456"
    "8000010200007f0000001000deadbeef0000000568656c6c6f0000005b3e4395"
)
PAYLOAD = slice(70, 78)


def test_a_missing_icrc_is_filled_in():
    assert filled_in(FRAME[:-4] + bytes(4)) == FRAME


@pytest.mark.parametrize("there", [FRAME[-4:], b"\0\0\0\1"], ids=["right", "wrong"])
def test_an_icrc_that_is_there_stays(there):
    assert filled_in(FRAME[:-4] + there)[-4:] == there


def test_a_frame_without_its_payload_gets_the_icrc_of_the_whole_one():
    zeros = bytearray(FRAME)
    zeros[PAYLOAD] = bytes(8)
    wanted = filled_in(bytes(zeros[:-4]) + bytes(4))
    assert verify(wanted)
    elided = bytearray(zeros[: PAYLOAD.start] + bytes(4))
    elided[16:18], elided[38:40] = (0x44 - 8).to_bytes(2, "big"), (0x30 - 8).to_bytes(2, "big")
    assert filled_in(bytes(elided), 8)[-4:] == wanted[-4:] != filled_in(bytes(elided))[-4:]


def test_what_is_not_roce_stays():
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    assert filled_in(arp) == arp
