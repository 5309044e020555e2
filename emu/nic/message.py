"""Messages between NICs, and a list of them that stays small.

A collective of 640 GPUs has 1.6 million messages. As Python objects they take 900 MB, and more pages than the host maps for a
process of the lab kernel (vm.max_map_count); as numbers in arrays, 70 MB.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat
from operator import sub
from typing import NamedTuple

from emu.topology.model import Port

Key = tuple[Port, Port, int]  # of a connection: source, target, channel


class Message(NamedTuple):
    """`size_bytes` from NIC to NIC, after the messages with these indexes. `channel` tells parallel connections apart."""

    source: Port
    target: Port
    size_bytes: int
    after: Sequence[int] = ()
    channel: int = 0


class Messages(Sequence[Message]):
    """Reads as a sequence of Message. Whoever has a million of them reads the columns: NICs are indexes of `ports`; `after` has
    what message m waits for from after_first[m] to after_first[m + 1]. Complete before anything derived from it is asked for.
    """

    def __init__(self) -> None:
        self.ports: list[Port] = []
        self.sources, self.targets, self.channels = array("I"), array("I"), array("I")
        self.sizes, self.after, self.after_first = array("q"), array("q"), array("q", [0])
        self._numbers: dict[Port, int] = {}

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Messages:
        if isinstance(messages, cls):
            return messages
        made = cls()
        for source, target, size_bytes, after, channel in messages:
            made.add(made.number(source), made.number(target), size_bytes, after, channel)
        return made

    def number(self, port: Port) -> int:
        """Of a NIC, as `add` wants it."""
        if port not in self._numbers:
            self._numbers[port] = len(self.ports)
            self.ports.append(port)
        return self._numbers[port]

    def add(self, source: int, target: int, size_bytes: int, after: Iterable[int] = (), channel: int = 0) -> None:
        self.sources.append(source)
        self.targets.append(target)
        self.sizes.append(size_bytes)
        self.channels.append(channel)
        self.after.extend(after)
        self.after_first.append(len(self.after))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return Message(self.ports[self.sources[at]], self.ports[self.targets[at]], self.sizes[at], tuple(self.waits_for(at)),
                       self.channels[at])

    def __iter__(self) -> Iterator[Message]:
        return (self[at] for at in range(len(self)))

    def waits_for(self, at: int) -> array:
        return self.after[self.after_first[at]:self.after_first[at + 1]]

    @property
    def wait_counts(self) -> Iterator[int]:
        """How many others each message waits for."""
        return map(sub, self.after_first[1:], self.after_first)

    @property
    def waits(self) -> Iterator[tuple[int, int]]:
        """(message, one that it waits for), in order."""
        return zip(chain.from_iterable(map(repeat, range(len(self)), self.wait_counts)), self.after, strict=True)

    @cached_property
    def connections(self) -> dict[Key, array]:
        """Indexes of the messages of each connection, connections in the order of their first."""
        numbers: dict[tuple[int, int, int], array] = {}
        for at, key in enumerate(zip(self.sources, self.targets, self.channels, strict=True)):
            if key in numbers:
                numbers[key].append(at)
            else:
                numbers[key] = array("I", [at])
        return {(self.ports[source], self.ports[target], channel): found for (source, target, channel), found in numbers.items()}

    @cached_property
    def connection_bytes(self) -> dict[Key, int]:
        return {key: sum(map(self.sizes.__getitem__, found)) for key, found in self.connections.items()}

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)


def sent_and_received(messages: Messages) -> tuple[dict[Port, int], dict[Port, int]]:
    """Bytes that each NIC sends, and that each receives."""
    sent, received = dict.fromkeys(messages.ports, 0), dict.fromkeys(messages.ports, 0)
    for (source, target, _), size_bytes in messages.connection_bytes.items():
        sent[source] += size_bytes
        received[target] += size_bytes
    return sent, received
