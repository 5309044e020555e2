"""The size table of a queue (TCA_STAB): frames that travel without their payload are accounted at their full length.

The kernel looks a frame's length up in a table of 16-bit lengths before it queues it, so that rates, queue bytes and marks
are those of the full frame. `tc` itself can't write one that names every length.
Source: linux/net/sched/sch_api.c (qdisc_get_stab, __qdisc_calculate_pkt_len), uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import struct

from emu.fabric.attributes import attributes

TCA_STAB_BASE, TCA_STAB_DATA = 1, 2
SIZE_SPEC = struct.Struct("=BBhiIIII")  # struct tc_sizespec
LINKLAYER_ETHERNET = 1


def size_table(elided_bytes: int, full_bytes: int) -> bytes:
    """Value of TCA_STAB: a frame of `elided_bytes` counts `full_bytes`, the longest there is; every other as it is."""
    lengths = list(range(full_bytes + 1))  # all of them: beyond its end the kernel repeats the table, odd slot and all
    lengths[elided_bytes] = full_bytes
    spec = SIZE_SPEC.pack(0, 0, 0, 0, LINKLAYER_ETHERNET, 0, 0, len(lengths))
    return _attribute(TCA_STAB_BASE, spec) + _attribute(TCA_STAB_DATA, struct.pack(f"={len(lengths)}H", *lengths))


def entries(kept: bytes | None) -> int:
    """Lengths in the table of a dumped queue, 0 without one; the kernel shows the table's description but not the table."""
    return SIZE_SPEC.unpack(attributes(kept)[TCA_STAB_BASE])[-1] if kept else 0


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
