"""htsim's connection matrices: who sends how many bytes to whom, when or after what.

    Nodes 16
    Connections 2
    Triggers 1
    0->15 id 1 start 0 size 2000000 send_done_trigger 1
    1->15 id 2 trigger 1 size 2000000
    trigger id 1 oneshot

Times are picoseconds. A flow starts at `start`, or when its trigger fires: oneshot by the one flow that names it, barrier by
the last of `count` flows, multishot one waiting flow each time. In what order flows fire a multishot is known to htsim only
when they end; here it is the order of the file. send_done and recv_done are both taken as the end of the flow: they differ by
the way of an acknowledgement.
Refused, because it would be left out unseen: link failures, priorities, add-on flows.
Source: Broadcom/csg-htsim sim/datacenter/connection_matrix.cpp (load), sim/trigger.cpp.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from emu.errors import UsageError
from emu.workload.text import Line, read_lines, shown

WHAT = "an htsim connection matrix (Nodes, Connections, then lines like `0->1 start 0 size 2000000`)"
ENDS = re.compile(r"([0-9]{1,9})->([0-9]{1,9})")
PICOSECONDS = re.compile(r"([0-9]{1,18})(\.0+)?")
HEADER = ("Nodes", "Connections", "Triggers", "Failures")
ATTRIBUTES = ("start", "size", "id", "trigger", "send_done_trigger", "recv_done_trigger")
TRIGGER_KINDS = ("oneshot", "multishot", "barrier")


class Flow(NamedTuple):
    """Starts at `start_ps`, or, where `after` isn't empty, when the flows with these indexes (all earlier) have ended."""

    source: int
    target: int
    size_bytes: int
    start_ps: int
    after: tuple[int, ...]


@dataclass(frozen=True)
class ConnectionMatrix:
    """`flows` in an order in which they can start; otherwise in that of the file."""

    nodes: int
    flows: tuple[Flow, ...]


def read_connection_matrix(path: str) -> ConnectionMatrix:
    """UsageError with file and line: what htsim refuses, aborts on or never starts, and what is refused here."""
    parser = _Parser()
    for line in read_lines(path, WHAT, comment="#"):
        parser.take(line)
    return parser.result(path)


@dataclass(frozen=True)
class _Connection:
    line: Line
    source: int
    target: int
    numbers: dict[str, int]


@dataclass(frozen=True)
class _Trigger:
    line: Line
    kind: str
    count: int | None


@dataclass
class _Parser:
    header: dict[str, tuple[int, Line]] = field(default_factory=dict)
    connections: list[_Connection] = field(default_factory=list)
    triggers: dict[int, _Trigger] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        first = line.words[0]
        if first in HEADER:
            self._take_header(line)
        elif first == "trigger":
            self._take_trigger(line)
        elif "->" in first:
            self.connections.append(_connection(line, self._header("Nodes", line)))
        else:
            raise line.refused(f"unknown line {shown(first)}; want {', '.join(HEADER)}, a connection like 0->1, or trigger")

    def result(self, path: str) -> ConnectionMatrix:
        nodes = self.header.get("Nodes")
        if nodes is None or not self.connections:
            raise UsageError(f"{path}: {'no connection' if nodes else 'no line `Nodes`'}; want {WHAT}")
        self._check_count("Connections", len(self.connections), path)
        self._check_count("Triggers", len(self.triggers), path)
        return ConnectionMatrix(nodes[0], _ordered(self.connections, _waits(self.connections, self.triggers)))

    def _take_header(self, line: Line) -> None:
        name = line.words[0]
        if len(line.words) != 2:
            raise line.refused(f"{name} has {len(line.words) - 1} values; want one")
        if name in self.header:
            raise line.refused(f"{name} for the second time; want it once")
        value = line.whole(name, line.words[1], at_least=1 if name == "Nodes" else 0)
        if name == "Failures" and value:
            raise line.refused(f"Failures {value}: link failures are not read; want a matrix without them")
        self.header[name] = value, line

    def _header(self, name: str, line: Line) -> int:
        if name not in self.header:
            raise line.refused(f"a connection before the line `{name}`; want the header first")
        return self.header[name][0]

    def _take_trigger(self, line: Line) -> None:
        words = [word for word in line.words[1:] if word not in TRIGGER_KINDS]
        kinds = [word for word in line.words[1:] if word in TRIGGER_KINDS]
        numbers = _numbers(line, words, ("id", "count"))
        if len(kinds) != 1 or not numbers.get("id"):
            kinds_there_are = ", ".join(TRIGGER_KINDS)
            raise line.refused(f"this trigger lacks its id or its kind; want `id` and a number, and one of {kinds_there_are}")
        if numbers["id"] in self.triggers:
            raise line.refused(f"trigger {numbers['id']} for the second time; want every id once")
        self.triggers[numbers["id"]] = _Trigger(line, kinds[0], numbers.get("count"))

    def _check_count(self, name: str, found: int, path: str) -> None:
        said, line = self.header.get(name, (0, None))
        if said != found:
            where = line.where if line else path
            raise UsageError(f"{where}: {name} {said}, but there are {found}; want `{name} {found}`")


def _connection(line: Line, nodes: int) -> _Connection:
    ends = ENDS.fullmatch(line.words[0])
    if not ends:
        raise line.refused(f"{shown(line.words[0])} is no connection; want node numbers like 0->1")
    source, target = int(ends[1]), int(ends[2])
    if source == target or max(source, target) >= nodes:
        raise line.refused(f"{source}->{target} with Nodes {nodes}; want two different nodes from 0 to {nodes - 1}")
    numbers = _numbers(line, line.words[1:], ATTRIBUTES)
    if not numbers.get("size"):
        raise line.refused(f"{source}->{target} has no size above 0; want `size` and its bytes")
    if ("start" in numbers) == ("trigger" in numbers):
        raise line.refused(f"{source}->{target} has {'both' if 'start' in numbers else 'neither'} start "
                           f"{'and' if 'start' in numbers else 'nor'} trigger; want one of them")
    return _Connection(line, source, target, numbers)


def _numbers(line: Line, words: Iterable[str], names: tuple[str, ...]) -> dict[str, int]:
    """Pairs of a name and a number."""
    numbers: dict[str, int] = {}
    rest = iter(words)
    for name in rest:
        if name not in names:
            raise line.refused(f"unknown or unsupported attribute {shown(name)}; want {', '.join(names)}")
        if name in numbers:
            raise line.refused(f"{name} for the second time; want it once")
        word = next(rest, "")
        if name == "start" and (whole := PICOSECONDS.fullmatch(word)):
            word = whole[1]
        numbers[name] = line.whole(name, word, at_least=1 if name in ("id", "count", "trigger") else 0)
    return numbers


def _waits(connections: list[_Connection], triggers: dict[int, _Trigger]) -> list[set[int]]:
    """By connection, those it starts after."""
    firing: dict[int, list[int]] = {}
    waiting: dict[int, list[int]] = {}
    for index, connection in enumerate(connections):
        for name in ("send_done_trigger", "recv_done_trigger"):
            if fired := connection.numbers.get(name):
                _defined(connection, fired, triggers)
                firing.setdefault(fired, []).append(index)
        if trigger := connection.numbers.get("trigger"):
            _defined(connection, trigger, triggers)
            waiting.setdefault(trigger, []).append(index)
    waits: list[set[int]] = [set() for _ in connections]
    for number, trigger in triggers.items():
        fired, waiters = firing.get(number, []), waiting.get(number, [])
        _check_fired(number, trigger, len(fired), len(waiters))
        for place, waiter in enumerate(waiters):
            waits[waiter].update([fired[place]] if trigger.kind == "multishot" else fired)
    return waits


def _defined(connection: _Connection, number: int, triggers: dict[int, _Trigger]) -> None:
    if number not in triggers:
        raise connection.line.refused(f"trigger {number} is not in the file; want a line `trigger id {number} oneshot`")


def _check_fired(number: int, trigger: _Trigger, fired: int, waiters: int) -> None:
    if trigger.kind == "barrier" and trigger.count != fired:
        raise trigger.line.refused(f"barrier {number} has count {trigger.count} but {fired} flows fire it; want count {fired}")
    if trigger.kind == "oneshot" and fired > 1:
        raise trigger.line.refused(f"oneshot {number} is fired by {fired} flows; want one, or a barrier")
    if trigger.kind == "multishot" and fired < waiters:
        raise trigger.line.refused(f"multishot {number} is fired by {fired} flows but {waiters} wait for it; want as many")
    if waiters and not fired:
        raise trigger.line.refused(f"{trigger.kind} {number} is fired by no flow; want a send_done_trigger {number}")


def _ordered(connections: list[_Connection], waits: list[set[int]]) -> tuple[Flow, ...]:
    """Each after those it waits for, the first of the file first among those that may."""
    followers: list[list[int]] = [[] for _ in connections]
    for index, before in enumerate(waits):
        for one in before:
            followers[one].append(index)
    missing = [len(before) for before in waits]
    ready = [index for index, count in enumerate(missing) if not count]
    place: dict[int, int] = {}
    while ready:
        index = heapq.heappop(ready)
        place[index] = len(place)
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    if stuck := [index for index in range(len(connections)) if index not in place]:
        raise connections[stuck[0]].line.refused("this flow waits for itself by way of its triggers; want a chain with a start")
    return tuple(_flow(connections[index], sorted(place[before] for before in waits[index])) for index in place)


def _flow(connection: _Connection, after: list[int]) -> Flow:
    numbers = connection.numbers
    return Flow(connection.source, connection.target, numbers["size"], numbers.get("start", 0), tuple(after))
