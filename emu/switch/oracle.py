"""What each mode's program must pick, in plain Python: the models that tests hold the programs against, packet by packet.

A model is one leaf's state with one method, `pick(packet, slots)`: the slot, of those that lead to the packet's leaf, or None
where the kernel forwards. They share no code with emu/bpf. What ECMP picks, only the kernel knows (emu.switch.ecmp.fib_pick).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from emu.switch.byte_time import ByteTime

WORD = (1 << 64) - 1
SPLITMIX_STEP = 0x9E3779B97F4A7C15
HOST_BITS = (1 << 24) - 1  # NICs' addresses are 10.0.0.0/8


class Packet(NamedTuple):
    """A RoCE packet as the leaf sees it: the port it came in by, addresses as numbers, its length on a real link."""

    ifindex: int
    source: int
    target: int
    udp_sport: int
    target_qp: int
    count_bytes: int
    at_ns: int


class Model(Protocol):
    """One leaf under one mode."""

    def pick(self, packet: Packet, slots: Sequence[int]) -> int | None:
        """The slot it goes up by; the model moves on."""


def mix(z: int) -> int:
    """splitmix64's output function (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def scaled(number: int, count: int) -> int:
    """32 bits as one of 0 … count-1."""
    return number * count >> 32


def flow_key(packet: Packet) -> int:
    """Both addresses and the UDP source port."""
    return (packet.source & HOST_BITS) << 40 | (packet.target & HOST_BITS) << 16 | packet.udp_sport


def connection_key(packet: Packet) -> int:
    """Where it came in, its target and the queue pair there."""
    return packet.ifindex << 48 | (packet.target & HOST_BITS) << 24 | packet.target_qp


@dataclass
class EnhancedHash:
    """5-tuple and destination QP."""

    hash_seed: int

    def pick(self, packet: Packet, slots: Sequence[int]) -> int:
        salt = mix(self.hash_seed * SPLITMIX_STEP + packet.target_qp & WORD)
        return slots[scaled(mix(flow_key(packet) ^ salt) >> 32, len(slots))]


@dataclass
class Table:
    """Paths by key; a path whose uplink no longer leads there is none."""

    key: Callable[[Packet], int]
    slot_of: Mapping[int, int]

    def pick(self, packet: Packet, slots: Sequence[int]) -> int | None:
        slot = self.slot_of.get(self.key(packet))
        return slot if slot in slots else None


@dataclass
class Random:
    """`state`: the leaf's seed."""

    state: int

    def pick(self, packet: Packet, slots: Sequence[int]) -> int:
        self.state = self.state + SPLITMIX_STEP & WORD
        return slots[scaled(mix(self.state) >> 32, len(slots))]


@dataclass
class RoundRobin:
    turn: int = 0

    def pick(self, packet: Packet, slots: Sequence[int]) -> int:
        self.turn += 1
        return slots[(self.turn - 1) % len(slots)]


@dataclass
class LeastBusy:
    """byte_times and limits_ns (what a buffer holds, in time on its link) by slot; `leaf_of` a packet's target."""

    byte_times: Sequence[ByteTime]
    limits_ns: Sequence[int]
    frame_ns: int
    leaf_of: Callable[[Packet], int]
    busy_ns: list[int] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)
    sent_there: Counter[tuple[int, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.busy_ns = [0] * len(self.byte_times)
        self.sent_bytes = [0] * len(self.byte_times)

    def least(self, packet: Packet, slots: Sequence[int]) -> int:
        """Shortest wait in frames, then fewest bytes to that leaf so far, then to all, then first."""
        leaf = self.leaf_of(packet)
        return min(slots, key=lambda slot: (
            max(0, self.busy_ns[slot] - packet.at_ns) // self.frame_ns, self.sent_there[leaf, slot], self.sent_bytes[slot]))

    def send(self, packet: Packet, slot: int) -> int:
        start_ns = max(self.busy_ns[slot], packet.at_ns)
        if start_ns - packet.at_ns <= self.limits_ns[slot]:
            self.busy_ns[slot] = start_ns + self.byte_times[slot].ns(packet.count_bytes)
        self.sent_bytes[slot] += packet.count_bytes
        self.sent_there[self.leaf_of(packet), slot] += packet.count_bytes
        return slot

    def pick(self, packet: Packet, slots: Sequence[int]) -> int:
        return self.send(packet, self.least(packet, slots))


@dataclass
class Flowlets:
    """`latest`: flow -> (when its latest packet came, its slot)."""

    links: LeastBusy
    gap_ns: int
    latest: dict[int, tuple[int, int]] = field(default_factory=dict)

    def pick(self, packet: Packet, slots: Sequence[int]) -> int:
        key = flow_key(packet)
        before_ns, slot = self.latest.get(key, (0, -1))
        if slot not in slots or packet.at_ns - before_ns > self.gap_ns:
            slot = self.links.least(packet, slots)
        self.latest[key] = packet.at_ns, slot
        return self.links.send(packet, slot)
