"""Reading the few attributes that matter out of dumped netlink messages.

pyroute2 decodes a link with all its sixty attributes in half a millisecond; at two dumps of a thousand ports that is
most of a build. Here a message is walked once and only what is asked for is unpacked. Source: linux/netlink.h.
"""

from __future__ import annotations

import struct

NESTED_MASK = 0x3FFF  # NLA_F_NESTED and NLA_F_NET_BYTEORDER share the type field
_HEADER = struct.Struct("=HH")

Attributes = dict[int, bytes]


def attributes(data: bytes, start: int = 0) -> Attributes:
    """Type -> value of every attribute from offset `start` on (the last of a kind wins)."""
    found: Attributes = {}
    end = len(data)
    while start + 4 <= end:
        length, kind = _HEADER.unpack_from(data, start)
        if length < 4:
            break
        found[kind & NESTED_MASK] = data[start + 4 : start + length]
        start += (length + 3) & ~3
    return found


def u32(data: bytes, offset: int = 0) -> int:
    return struct.unpack_from("=I", data, offset)[0]


def text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()
