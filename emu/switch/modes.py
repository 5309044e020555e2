"""The load-balancing modes by the names that users give them."""

from __future__ import annotations

from typing import Any

from emu.errors import unknown
from emu.switch.ddc import Ddc
from emu.switch.ecmp import Ecmp, EnhancedEcmp
from emu.switch.flow_table import FlowTable
from emu.switch.flowlet import Flowlet
from emu.switch.mode import Mode
from emu.switch.spray import Spray, SprayRandom, SprayRoundRobin

MODES: dict[str, type[Mode] | type[Ddc]] = {
    "ecmp": Ecmp,
    "eecmp": EnhancedEcmp,
    "path": FlowTable,
    "spray": Spray,
    "spray_random": SprayRandom,
    "spray_rr": SprayRoundRobin,
    "flowlet": Flowlet,
    "ddc": Ddc,
}


def mode(name: str, **parameters: Any) -> Mode | Ddc:
    """MODES[name](**parameters); UsageError names the modes there are."""
    if name not in MODES:
        raise unknown("lb", name, MODES)
    return MODES[name](**parameters)
