"""Reordering of one flow, from the sequence numbers in the order in which the packets arrived.

A packet is reordered if one with a larger number came before it; its extent is how many places earlier the first of
those came (RFC 4737, Type-P-Reordered and its extent). The remedy is a buffer that holds a packet until all before it
are there. How many it holds after an arrival, as shares of all arrivals, is the reorder buffer-occupancy density (RFC
5236, RBD); the most bytes held are the buffer that a NIC needs to deliver in order, and not to place by address.

Duplicates count as such and nowhere else. A packet that never came is waited for by nobody: the whole trace is known,
so RFC 5236's threshold for giving up isn't needed. One that was lost and sent again did come, late, and counts as
reordered: that is what the receiver saw. Both RFCs by memory, not re-read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from emu.errors import UsageError
from emu.measure.metric import Metric


@dataclass(frozen=True)
class Reordering:
    """`extents` are those of the reordered packets, in places of arrival; `held_packets`: packets held -> arrivals."""

    received_packets: int  # without duplicates
    duplicate_packets: int
    extents: tuple[int, ...]
    held_packets: Mapping[int, int]
    buffer_bytes: int  # most that were held at once

    @property
    def reordered_ratio(self) -> float:
        return len(self.extents) / self.received_packets

    @property
    def extent_max(self) -> int:
        """0 if nothing was reordered."""
        return max(self.extents, default=0)

    @property
    def buffer_packets(self) -> int:
        """Most packets held at once."""
        return max(self.held_packets)

    @property
    def buffer_density(self) -> dict[int, float]:
        """RBD: packets held after an arrival -> share of arrivals."""
        return {held: times / self.received_packets for held, times in sorted(self.held_packets.items())}

    def metrics(self) -> list[Metric]:
        """The contract's figures of this flow."""
        return [
            Metric("reordered_ratio", self.reordered_ratio, "ratio", note="RFC 4737"),
            Metric("reorder_extent_max", self.extent_max, "packets", note="RFC 4737"),
            Metric("reassembly_buffer_packets", self.buffer_packets, "packets", note="RFC 5236, most held by RBD"),
            Metric("reassembly_buffer_bytes", self.buffer_bytes, "bytes", note="an in-order NIC would have needed it"),
        ]


def reordering(arrivals: Sequence[int], sizes_bytes: Sequence[int] | int) -> Reordering:
    """Of one flow's packets; `arrivals` are numbers that don't wrap, `sizes_bytes` the size of each or of all.

    UsageError if nothing arrived or if there is not one size for each arrival.
    """
    sizes = [sizes_bytes] * len(arrivals) if isinstance(sizes_bytes, int) else sizes_bytes
    if not arrivals or len(sizes) != len(arrivals):
        raise UsageError(f"{len(arrivals)} arrivals and {len(sizes)} sizes; want 1 or more, and one size for each")
    first = {}
    for number, size in zip(arrivals, sizes, strict=True):
        first.setdefault(number, size)
    held = list(_held(first))
    return Reordering(
        received_packets=len(first),
        duplicate_packets=len(arrivals) - len(first),
        extents=tuple(extent for extent in _extents(list(first)) if extent),
        held_packets=Counter(packets for packets, _ in held),
        buffer_bytes=max(held_bytes for _, held_bytes in held),
    )


def _extents(numbers: Sequence[int]) -> Iterator[int]:
    """Of each arrival, 0 if in order. The first larger number is always one that was a record when it came."""
    records: list[int] = []
    places: list[int] = []
    for place, number in enumerate(numbers):
        earlier = bisect_right(records, number)
        if earlier == len(records):
            records.append(number)
            places.append(place)
            yield 0
        else:
            yield place - places[earlier]


def _held(sizes_bytes: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """(packets, bytes) held after each arrival, of `number -> size` in the order of arrival."""
    waiting = iter(sorted(sizes_bytes))
    expected = next(waiting)
    held: set[int] = set()
    held_bytes = 0
    for number, size in sizes_bytes.items():
        held.add(number)
        held_bytes += size
        while expected in held:
            held.remove(expected)
            held_bytes -= sizes_bytes[expected]
            expected = next(waiting, None)
        yield len(held), held_bytes
