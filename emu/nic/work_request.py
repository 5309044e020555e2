"""Work requests: messages between NICs, what each waits for, and the tables that the eBPF NIC runs them from.

A message goes out once everything in `after` has arrived at its sender's server and the messages listed before it on the
same connection have gone out: chains like these run a whole collective without a program in between. The clear-to-send
of NCCL is such a message too, 64 bytes in the other direction, and the data waits for it (domain facts 5.8).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from emu.errors import UsageError
from emu.nic.message import Key, Message, Messages
from emu.topology.model import Port

__all__ = ["CLEAR_TO_SEND_BYTES", "End", "Key", "Message", "Work", "arrange", "ends_of", "request_table", "with_credit"]

CLEAR_TO_SEND_BYTES = 64
FIRST_QPN = 16  # 0 and 1 are InfiniBand's management queue pairs


@dataclass(kw_only=True)
class End:
    """One end of a connection: number, NIC, the other end's, and its range of requests (sent by it)."""

    qpn: int
    nic: Port
    peer: Port
    channel: int
    requests: Sequence[int]
    request_first: int = 0

    @property
    def request_end(self) -> int:
        return self.request_first + len(self.requests)


@dataclass(frozen=True)
class Work:
    """Messages arranged for the engine. `ends` by (NIC, peer, channel), numbers contiguous per server; `slot` of each message."""

    messages: Messages
    ends: dict[Key, End]
    slot: array

    def peer_of(self, end: End) -> End:
        return self.ends[end.peer, end.nic, end.channel]


class _Connection:
    """While credits are put in: the channel of a connection's data and credits, and where its messages have gone so far."""

    def __init__(self, source: Port, target: Port, channel: int) -> None:
        self.channel = 2 * channel + (source > target)
        self.placed = array("q")


def with_credit(messages: Iterable[Message], ahead: int = 0) -> Messages:
    """The same messages, each sent only after the receiver's clear-to-send. Indexes in `after` are the old ones.

    `ahead`: buffers of a connection; the receiver clears a message once the one that many before it has arrived (0: all at
    the start). Channels become twice the old ones, plus one for the second direction of a pair: NCCL has a connection for each
    direction, and a credit must not wait behind data that goes the same way.
    """
    old, result = Messages.of(messages), Messages()
    numbers = [result.number(port) for port in old.ports]
    connections: dict[tuple[int, int, int], _Connection] = {}
    for key, size_bytes, first, end in zip(zip(old.sources, old.targets, old.channels, strict=True), old.sizes,
                                           old.after_first, old.after_first[1:], strict=False):
        if key not in connections:
            connections[key] = _Connection(old.ports[key[0]], old.ports[key[1]], key[2])
        connection, at = connections[key], len(result)
        source, target = numbers[key[0]], numbers[key[1]]
        free = connection.placed[-ahead:][:1] if 0 < ahead <= len(connection.placed) else ()
        result.add(target, source, CLEAR_TO_SEND_BYTES, free, connection.channel)
        result.add(source, target, size_bytes, (at, *[2 * before + 1 for before in old.after[first:end]]), connection.channel)
        connection.placed.append(at + 1)
    return result


def arrange(messages: Iterable[Message]) -> Work:
    """UsageError: an empty message, a NIC that sends to itself, a wait for what arrives on another server or never."""
    messages = Messages.of(messages)
    check(messages)
    ends = ends_of(messages)
    slot = array("I", bytes(4 * len(messages)))
    first = 0
    for end in ends.values():
        end.request_first = first
        for place, index in enumerate(end.requests, start=first):
            slot[index] = place
        first = end.request_end
    return Work(messages, ends, slot)


def ends_of(messages: Messages) -> dict[Key, End]:
    """Both ends of each connection, with their queue pairs' numbers; where their requests begin is arrange()'s to say."""
    sent = messages.connections
    keys = {*sent, *((target, source, channel) for source, target, channel in sent)}
    return {
        key: End(qpn=qpn, nic=key[0], peer=key[1], channel=key[2], requests=sent.get(key, ()))
        for qpn, key in enumerate(sorted(keys), start=FIRST_QPN)
    }


def check(messages: Messages) -> None:
    for at, (source, target, size_bytes) in enumerate(zip(messages.sources, messages.targets, messages.sizes, strict=True)):
        if size_bytes < 1:
            raise _fault(messages, at, f"has {size_bytes} bytes; want at least 1")
        if source == target:
            raise _fault(messages, at, "stays where it is: a NIC does not send to itself")
    nodes = [port.node for port in messages.ports]
    for at, before in messages.waits:
        if not 0 <= before < at:
            raise _fault(messages, at, f"waits for message {before}; want one that is listed before it")
        node = nodes[messages.targets[before]]
        if node != nodes[messages.sources[at]]:
            raise _fault(messages, at, f"waits for message {before}, which arrives on {node}")


def _fault(messages: Messages, at: int, what: str) -> UsageError:
    return UsageError(f"message {at} from {messages[at].source} to {messages[at].target} {what}")


def request_table(work: Work, mtu_bytes: int, layout: struct.Struct) -> tuple[bytearray, array]:
    """(requests, releases) as nic.h has them; `layout` packs one request, fields in its order."""
    requests = bytearray(layout.size * len(work.messages))
    releases, firsts = release_table(work)
    sizes, waits = work.messages.sizes, array("I", work.messages.wait_counts)
    at = 0
    for end in work.ends.values():
        psn = address = 0
        for number, index in enumerate(end.requests):
            size_bytes, first = sizes[index], firsts[at]
            packets = -(-size_bytes // mtu_bytes)
            layout.pack_into(
                requests, layout.size * at, address, 0, end.qpn, size_bytes, psn, packets, waits[index], first,
                firsts[at + 1] - first, number,
            )
            at += 1
            psn += packets
            address += packets * mtu_bytes
    return requests, releases


def release_table(work: Work) -> tuple[array, array]:
    """What each request releases: (struct nic_release, one after the other in the order of the slots; where each slot's begin).

    A counting sort, because a list per message takes longer to make than all else.
    """
    slot, counts = work.slot, array("I", bytes(4 * len(work.messages)))
    for before in work.messages.after:
        counts[slot[before]] += 1
    firsts = array("I", accumulate(counts, initial=0))
    free, releases = firsts[:], array("Q", bytes(8 * len(work.messages.after)))
    for index, before in work.messages.waits:
        at = slot[before]
        releases[free[at]] = slot[index]
        free[at] += 1
    return releases, firsts
