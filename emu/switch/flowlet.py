"""Flowlet switching: a flow may change its uplink after a pause long enough for what it sent before to have arrived.

Source: Kandula et al., Dynamic Load Balancing Without Packet Reordering, CCR 2007; Alizadeh et al., CONGA, SIGCOMM 2014 (from
memory). RDMA, paced by hardware, pauses little: there are few flowlets to move.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import UsageError
from emu.scale import Scale
from emu.switch.leaves import Leaf
from emu.switch.mode import Mode, least_busy_model
from emu.switch.oracle import Flowlets, Model
from emu.switch.tables import Tables
from emu.units import us


@dataclass(frozen=True)
class Flowlet(Mode):
    """A packet more than `gap_ns` (fabric time) after the flow's one before goes where least is queued, others follow it."""

    gap_ns: int = us(50)
    program = "pick_flowlet"

    def __post_init__(self) -> None:
        if self.gap_ns < 0:
            raise UsageError(f"gap_ns={self.gap_ns}; want 0 (every packet may move) or more")

    def settings(self, scale: Scale) -> dict[str, int]:
        return {"flowlet_gap_ns": scale.kernel_ns(self.gap_ns)}

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        return Flowlets(least_busy_model(tables, leaf), tables.fabric.scale.kernel_ns(self.gap_ns))
