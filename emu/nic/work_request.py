"""Work requests: messages between NICs, what each waits for, and the tables that the eBPF NIC runs them from.

A message goes out once everything in `after` has arrived at its sender's server and the messages listed before it on the
same connection have gone out: chains like these run a whole collective without a program in between. The clear-to-send
of NCCL is such a message too, 64 bytes in the other direction, and the data waits for it (domain facts 5.8).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.errors import UsageError
from emu.topology.model import Port

CLEAR_TO_SEND_BYTES = 64
FIRST_QPN = 16  # 0 and 1 are InfiniBand's management queue pairs
U32_MAX = (1 << 32) - 1


class Message(NamedTuple):
    """`size_bytes` from NIC to NIC, after the messages with these indexes. `channel` tells parallel connections apart.

    A tuple, because a collective of 640 GPUs has 1.6 million of them.
    """

    source: Port
    target: Port
    size_bytes: int
    after: Sequence[int] = ()
    channel: int = 0


@dataclass(kw_only=True)
class End:
    """One end of a connection: number, NIC, the other end's, and its range of requests (sent by it)."""

    qpn: int
    nic: Port
    peer: Port
    channel: int
    requests: list[int] = field(default_factory=list)
    request_first: int = 0

    @property
    def request_end(self) -> int:
        return self.request_first + len(self.requests)


Key = tuple[Port, Port, int]


@dataclass(frozen=True)
class Work:
    """Messages arranged for the engine. `ends` by (NIC, peer, channel), numbers contiguous per server; `slot` of each message."""

    messages: Sequence[Message]
    ends: dict[Key, End]
    slot: list[int]

    @property
    def total_bytes(self) -> int:
        return sum(message.size_bytes for message in self.messages)

    def peer_of(self, end: End) -> End:
        return self.ends[end.peer, end.nic, end.channel]


class _Connection:
    """While credits are put in: the channel of a connection's data and credits, and where its messages have gone so far."""

    def __init__(self, source: Port, target: Port, channel: int) -> None:
        self.channel = 2 * channel + (source > target)
        self.placed: list[int] = []


def with_credit(messages: Iterable[Message], ahead: int = 0) -> list[Message]:
    """The same messages, each sent only after the receiver's clear-to-send. Indexes in `after` are the old ones.

    `ahead`: buffers of a connection; the receiver clears a message once the one that many before it has arrived (0: all at
    the start). Channels become twice the old ones, plus one for the second direction of a pair: NCCL has a connection for each
    direction, and a credit must not wait behind data that goes the same way.
    """
    result: list[Message] = []
    connections: dict[Key, _Connection] = {}
    moved: list[int] = []
    for source, target, size_bytes, after, channel in messages:
        key = source, target, channel
        connection = connections.get(key) or connections.setdefault(key, _Connection(*key))
        placed, at = connection.placed, len(result)
        free = (placed[-ahead],) if 0 < ahead <= len(placed) else ()
        result.append(Message(target, source, CLEAR_TO_SEND_BYTES, free, connection.channel))
        result.append(Message(source, target, size_bytes, (at, *[moved[before] for before in after]), connection.channel))
        placed.append(at + 1)
        moved.append(at + 1)
    return result


def arrange(messages: Sequence[Message]) -> Work:
    """UsageError: an empty message, a NIC that sends to itself, a wait for what arrives on another server or never."""
    check(messages)
    sent: dict[Key, list[int]] = {}
    for index, (source, target, _, _, channel) in enumerate(messages):
        key = source, target, channel
        if key in sent:
            sent[key].append(index)
        else:
            sent[key] = [index]
    keys = {*sent, *((target, source, channel) for source, target, channel in sent)}
    ends = {
        key: End(qpn=qpn, nic=key[0], peer=key[1], channel=key[2], requests=sent.get(key, []))
        for qpn, key in enumerate(sorted(keys), start=FIRST_QPN)
    }
    slot = [0] * len(messages)
    first = 0
    for end in ends.values():
        end.request_first = first
        for place, index in enumerate(end.requests):
            slot[index] = first + place
        first = end.request_end
    return Work(messages, ends, slot)


def check(messages: Sequence[Message]) -> None:
    nodes = [message.target.node for message in messages]
    for index, (source, target, size_bytes, after, _) in enumerate(messages):
        fault = None
        if size_bytes < 1:
            fault = f"has {size_bytes} bytes; want at least 1"
        elif source is target or source == target:
            fault = "stays where it is: a NIC does not send to itself"
        for before in after:
            if not 0 <= before < index:
                fault = f"waits for message {before}; want one that is listed before it"
            elif nodes[before] != source.node:
                fault = f"waits for message {before}, which arrives on {nodes[before]}"
        if fault:
            raise UsageError(f"message {index} from {source} to {target} {fault}")


def request_table(work: Work, mtu_bytes: int, layout: struct.Struct) -> tuple[bytearray, bytearray]:
    """(requests, releases) as nic.h has them; `layout` packs one request, fields in its order."""
    requests = bytearray(layout.size * len(work.messages))
    releases, counts = release_table(work)
    first = at = 0
    for end in work.ends.values():
        psn = address = 0
        for number, index in enumerate(end.requests):
            message, released = work.messages[index], counts[at]
            packets = -(-message.size_bytes // mtu_bytes)
            layout.pack_into(
                requests, layout.size * at, address, 0, end.qpn, message.size_bytes, psn, packets, len(message.after), first,
                released, number,
            )
            at += 1
            first += released
            psn += packets
            address += packets * mtu_bytes
    return requests, bytearray(releases.tobytes())


def release_table(work: Work) -> tuple[array, list[int]]:
    """What each request releases, in the order of the slots: (struct nic_release, one after the other; how many for each).

    By sorting integers, because a list per message takes longer to make than all else.
    """
    slot, counts = work.slot, [0] * len(work.messages)
    pairs = [slot[before] << 32 | index for index, message in enumerate(work.messages) for before in message.after]
    for pair in pairs:
        counts[pair >> 32] += 1
    return array("Q", [slot[pair & U32_MAX] for pair in sorted(pairs)]), counts
