"""What all load-balancing modes have in common: a program for the leaves' ports towards servers, and how it is put there.

    with Spray().install(fabric) as lb:
        ...
        lb.counters().packets[Port("leaf0", "up0")]

A mode is a small frozen object that names its program in emu/bpf/switch.bpf.c; the data path never asks which mode it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import ClassVar

from emu.errors import FabricError
from emu.fabric.bpf_filter import INGRESS, add_clsact, attach, detach, remove_clsact
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Batch
from emu.fabric.voq import Voq
from emu.scale import Scale
from emu.switch.byte_time import ByteTime
from emu.switch.leaves import Leaf
from emu.switch.oracle import LeastBusy, Model
from emu.switch.tables import Tables
from emu.topology.model import Port
from emu.topology.plan import Route

OBJECT = "switch"


@dataclass(frozen=True)
class Picks:
    """What the program has done: packets and bytes (frames without payload at full length) given to each uplink, and
    packets that each leaf left to the kernel for want of a path."""

    packets: dict[Port, int]
    bytes: dict[Port, int]
    unknown: dict[str, int]

    def row(self) -> dict[str, float]:
        """For one line of a table: nothing that the uplinks' queues don't tell."""
        return {}


@dataclass(frozen=True)
class Mode:
    """`program`: its section in switch.bpf.c."""

    program: ClassVar[str]

    def install(self, fabric: Fabric) -> Installed:
        """To be entered: the mode is at work within the block. MissingFeature if the kernel refuses the program."""
        return Installed(fabric, self)

    def settings(self, scale: Scale) -> dict[str, int]:
        """Its own fields of switch_settings."""
        return {}

    def fill(self, tables: Tables) -> None:
        """What it needs in the maps before the first packet."""

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        """What it picks at `leaf`, as plain Python."""
        raise NotImplementedError(f"{type(self).__name__} is the kernel's: ask emu.switch.ecmp.fib_pick")


class Installed:
    """A mode at work on every leaf of a fabric. `voqs`: a leaf holds nothing back for its egress port."""

    voqs: ClassVar[Mapping[str, Voq]] = {}

    def __init__(self, fabric: Fabric, mode: Mode) -> None:
        self.fabric, self.mode = fabric, mode
        self._loaded = fabric.bpf().load(OBJECT)
        self.tables = Tables(fabric, self._loaded)
        self._own_hook = fabric.marker != "bpf"  # which has put one on every port of a switch
        self._undo = ExitStack()

    def __enter__(self) -> Installed:
        with ExitStack() as undo:
            self.tables.load(**self.mode.settings(self.fabric.scale))
            self.mode.fill(self.tables)
            for leaf in self.tables.leaves:
                undo.callback(self._detach, leaf)
                self._attach(leaf)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """Choose among these from now on: the way of emu.fabric.failure to tell what is dead."""
        self.tables.reroute(routes)

    def model(self, leaf: str) -> Model:
        """The mode's Python model of one leaf, in its first state."""
        return self.mode.model(self.tables, next(found for found in self.tables.leaves if found.name == leaf))

    def counters(self) -> Picks:
        states = [(leaf, self.tables.leaf_state(leaf)) for leaf in self.tables.leaves]
        return Picks(
            packets={port.port: state.sent_packets[slot] for leaf, state in states for slot, port in enumerate(leaf.up)},
            bytes={port.port: state.sent_bytes[slot] for leaf, state in states for slot, port in enumerate(leaf.up)},
            unknown={leaf.name: state.unknown for leaf, state in states},
        )

    def waiting_bytes(self, uplink: Port, now_ns: int) -> int:
        """What the program takes to be queued at `uplink` at kernel time `now_ns`, the frame on the link included."""
        leaf, slot = self.tables.slots[uplink]
        wait_ns = self.tables.leaf_state(leaf).busy_ns[slot] - now_ns
        return max(0, wait_ns) * self.fabric.settings[uplink].rate_bytes // 1_000_000_000

    def _attach(self, leaf: Leaf) -> None:
        batch = Batch()
        for port in leaf.down:
            if self._own_hook:
                add_clsact(batch, port.ifindex, str(port.port))
            attach(batch, port.ifindex, INGRESS, self._loaded.program_fd(self.mode.program), self.mode.program, str(port.port))
        self.fabric.netlink(leaf.name).run(batch)

    def _detach(self, leaf: Leaf) -> None:
        batch = Batch()
        for port in leaf.down:
            if self._own_hook:
                remove_clsact(batch, port.ifindex, str(port.port))
            else:
                detach(batch, port.ifindex, INGRESS, str(port.port))
        with suppress(FabricError):  # what was never attached, because attaching failed half-way
            self.fabric.netlink(leaf.name).run(batch)


def least_busy_model(tables: Tables, leaf: Leaf) -> LeastBusy:
    """Of a leaf's uplinks, all idle."""
    settings = [tables.fabric.settings[port.port] for port in leaf.up]
    times = [ByteTime.at(setting.rate_bytes) for setting in settings]
    limits_ns = [time.ns(setting.limit_bytes) for time, setting in zip(times, settings, strict=True)]
    network, shift = tables.numbers.network, tables.numbers.shift
    return LeastBusy(times, limits_ns, tables.frame_ns, lambda packet: packet.target - network >> shift)
