"""Netlink messages encoded once by pyroute2 and filled in a thousand times.

pyroute2 takes 30 to 120 µs to encode one message, copying one and writing its few variable fields 2 µs. A template is an
ordinary pyroute2 message with marks (values that occur nowhere else) in place of the variable fields; where a mark stands
in the encoded bytes, values of the same length go.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from pyroute2.netlink import nlmsg

IFNAMSIZ = 16
_TAG = 0x5AC3  # begins every mark


def mark_number(slot: int) -> int:
    """A 32-bit field."""
    return _TAG << 16 | 0xA500 | slot


def mark_address(slot: int) -> str:
    """An IPv4 address."""
    return socket.inet_ntoa(struct.pack(">HH", _TAG, 0xA500 | slot))


def mark_mac(slot: int) -> str:
    """A hardware address."""
    return f"5a:c3:a5:5a:c3:{slot:02x}"


def mark_name(slot: int) -> str:
    """An interface name: as long as one may be, because shorter ones are padded with NULs."""
    return f"railbed-mark-{slot:02d}"


class Template:
    """`message`, complete but for the marks; `slots` gives each variable field's mark, as it was put into the message."""

    def __init__(self, message: nlmsg, kind: int, flags: int, slots: Mapping[str, int | str]) -> None:
        message["header"]["type"], message["header"]["flags"] = kind, flags
        message.encode()
        self._data = bytes(message.data)
        self._fields: dict[str, tuple[int, int]] = {}
        for name, mark in slots.items():
            raw = packed(mark)
            if self._data.count(raw) != 1:
                raise ValueError(f"mark {mark!r} of {name} stands {self._data.count(raw)} times in the message, want once")
            self._fields[name] = self._data.index(raw), len(raw)

    def fill(self, **values: int | str) -> bytearray:
        """A message with every slot filled: integers, addresses, hardware addresses and names, as the marks were."""
        data = bytearray(self._data)
        for name, (offset, length) in self._fields.items():
            raw = packed(values[name])
            data[offset : offset + length] = raw
        return data


def packed(value: int | str) -> bytes:
    """The bytes of a field in a netlink message: u32, IPv4 address, hardware address or interface name."""
    if isinstance(value, int):
        return struct.pack("=I", value)
    if value.count(":") == 5:
        return bytes.fromhex(value.replace(":", ""))
    if value.count(".") == 3:
        return socket.inet_aton(value)
    return value.encode().ljust(IFNAMSIZ, b"\0")
