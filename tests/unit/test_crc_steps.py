"""The eBPF NIC's way to a CRC, words and zeros by tables, comes to what zlib says."""

import struct
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from emu.nic.crc_steps import ONES, STEPS_BYTES, table

ENTRIES = [list(step) for step in struct.iter_unpack("=1024I", table())]


def past(entry: list[int], register: int) -> int:
    """past_word() of nic_icrc.h."""
    lowest, low, high, highest = register.to_bytes(4, "little")
    return entry[lowest] ^ entry[256 + low] ^ entry[512 + high] ^ entry[768 + highest]


@given(words=st.lists(st.integers(0, ONES), max_size=20), zeros=st.integers(0, 1024).map(lambda count: 4 * count))
def test_words_and_then_zeros_come_to_the_crc_of_the_bytes(words, zeros):
    register = ONES
    for word in words:
        register = past(ENTRIES[0], register ^ word)
    for entry, count in zip(ENTRIES, STEPS_BYTES, strict=True):
        if zeros & count:
            register = past(entry, register)
    wanted = crc32(struct.pack(f"<{len(words)}I", *words) + bytes(zeros))
    assert register ^ ONES == wanted, f"{register ^ ONES:08x}, zlib says {wanted:08x}"


def test_there_is_a_step_for_every_length_up_to_the_longest_payload():
    assert sum(STEPS_BYTES) >= 4096 and STEPS_BYTES == sorted(1 << bit for bit in range(2, 13)), STEPS_BYTES
