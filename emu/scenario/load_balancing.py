"""The load-balancing mode that a run asks for, at work on its fabric."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.scenario.choice import Values

if TYPE_CHECKING:
    from emu.fabric.fabric import Fabric
    from emu.fabric.failure import Follower
    from emu.nic.controller import PathController
    from emu.nic.work_request import Message
    from emu.switch.ddc import InstalledDdc
    from emu.switch.mode import Installed


@dataclass(frozen=True)
class Balancer:
    """What is at work: the switch programs, and with lb=path the controller; `followers` are told of changed routes."""

    installed: Installed | InstalledDdc
    controller: PathController | None = None

    @property
    def followers(self) -> Sequence[Follower]:
        return (self.installed, self.controller) if self.controller else (self.installed,)

    def row(self) -> dict[str, object]:
        """What the mode's own counters add to a table; with a controller also the busiest link that it promised, flows that it
        moved, packets for which it had no path."""
        counters = self.installed.counters()
        if not self.controller:
            return counters.row()
        return counters.row() | {
            "promised_max_bytes": self.controller.navigation.max_bytes, "bound_max_bytes": self.controller.navigation.bound_bytes,
            "moved_flows": self.controller.moved, "unknown_packets": sum(counters.unknown.values()),
        }


@contextlib.contextmanager
def balancing(fabric: Fabric, p: Values, messages: Sequence[Message], **own: Any) -> Iterator[Balancer]:
    """`lb` on every leaf, with its `own` settings; with lb=path the controller is told the connections of `messages` first.

    UsageError where the topology has more to choose than a leaf's uplinks, which only ecmp does.
    """
    from emu.nic.controller import PathController
    from emu.switch.leaves import need_leaves_and_spines
    from emu.switch.modes import mode

    need_leaves_and_spines(fabric.plan.topology, p.lb)
    controller = PathController(fabric.plan, messages) if p.lb == "path" else None
    chosen = controller.mode if controller else mode(p.lb, **own)
    with chosen.install(fabric) as installed:
        if controller:
            controller.follow(installed)
        yield Balancer(installed, controller)
