"""How long a message is on the wire: a frame for each MTU of payload, each with Ethernet, IP, UDP and RoCE headers.

Payloads are padded to four bytes. Frames without preamble, gap and FCS, as queues count them.
Source: IBTA volume 1, 9.2 (pad count); emu.topology.plan for the headers.
"""

from __future__ import annotations

from emu.topology.plan import ETHERNET_BYTES, ROCE_OVERHEAD_BYTES

HEADER_BYTES, ACK_BYTES = ETHERNET_BYTES + ROCE_OVERHEAD_BYTES, 62


def frame_bytes(payload_bytes: int) -> int:
    return HEADER_BYTES + -(-payload_bytes // 4) * 4


def frames_bytes(size_bytes: int, mtu_bytes: int) -> int:
    """All frames of a message of `size_bytes`."""
    whole, rest = divmod(size_bytes, mtu_bytes)
    return whole * frame_bytes(mtu_bytes) + (frame_bytes(rest) if rest else 0)


def size_of_frames(wire_bytes: int, mtu_bytes: int) -> int:
    """The longest message whose frames are no longer than `wire_bytes`; at least 1 byte."""
    whole, rest = divmod(wire_bytes, frame_bytes(mtu_bytes))
    return max(1, whole * mtu_bytes + max(0, rest - HEADER_BYTES) // 4 * 4)
