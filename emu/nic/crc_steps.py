"""The tables by which the eBPF NIC takes words and zeros into an iCRC (nic_icrc.h).

CRC-32 is linear over XOR: what the register becomes past zero bytes is the sum of what becomes of each of its bits.
Source: Ross Williams, "A painless guide to CRC error detection algorithms", 1993; the register is zlib's, inverted.
"""

from __future__ import annotations

import struct
from zlib import crc32

STEPS_BYTES = [4 << step for step in range(11)]  # CRC_STEPS of nic.h
ONES = (1 << 32) - 1


def past_zeros(register: int, count: int) -> int:
    """CRC-32's register after `count` more zero bytes."""
    return crc32(bytes(count), register ^ ONES) ^ ONES


def table() -> bytes:
    """struct nic_crc_step for each of STEPS_BYTES."""
    return b"".join(struct.pack("=1024I", *sums(count)) for count in STEPS_BYTES)


def sums(count: int) -> list[int]:
    """For each byte of the register, low byte first, and each of its values: the register past `count` zeros."""
    bits = [past_zeros(1 << bit, count) for bit in range(32)]
    found: list[int] = []
    for lowest in range(0, 32, 8):
        of_byte = [0]
        for bit in bits[lowest : lowest + 8]:
            of_byte += [value ^ bit for value in of_byte]
        found += of_byte
    return found
