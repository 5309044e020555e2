"""What the controller of path navigation promised for every link, against what the links' queues sent.

The promise is in bytes of payload. On the wire each packet has its headers too, and acknowledgements (one for four packets,
so 0.4 %) share the links: the promise is met if the busiest link carries what it says to 1 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.measure.balance import uplinks_of
from emu.measure.metric import Metric
from emu.measure.transfers import Transferred
from emu.switch.path_navigation import Navigation
from emu.topology.model import Link, Port

Loads = Mapping[tuple[str, int], int]  # (leaf, number of the uplink) -> bytes, up it or down the same cable


@dataclass(frozen=True)
class Promise:
    """One run of the connections that `navigation` has paths for; `dead` cables were so from before its start."""

    navigation: Navigation
    transferred: Transferred
    dead: Sequence[Link] = ()

    @property
    def uplinks(self) -> dict[tuple[str, int], Port]:
        """(leaf, number) -> the leaf's port; the controller's numbering."""
        plan = self.transferred.fabric.plan
        return {(leaf, number): port for leaf, ports in uplinks_of(plan).items() for number, port in enumerate(ports)}

    @property
    def sent_up(self) -> Loads:
        """Bytes on the wire, leaf → spine."""
        return {link: self.transferred.delta[port].sent_bytes for link, port in self.uplinks.items()}

    @property
    def sent_down(self) -> Loads:
        """Bytes on the wire, spine → leaf."""
        plan = self.transferred.fabric.plan
        return {link: self.transferred.delta[plan.ports[port].peer].sent_bytes for link, port in self.uplinks.items()}

    def off(self, promised: Loads, sent: Loads) -> float:
        """Busiest link: sent over what was promised, headers added, less 1. 0 where nothing was promised and nothing sent."""
        plan = self.transferred.fabric.plan
        wanted = max(promised.values(), default=0) * plan.frame_bytes / plan.topology.path_mtu_bytes
        return max(sent.values()) / wanted - 1 if wanted else float(max(sent.values()))

    def row(self) -> dict[str, object]:
        """One line of a table."""
        navigation, up, down = self.navigation, self.sent_up, self.sent_down
        return {
            "flows": len(navigation.paths),
            "bound_max_bytes": navigation.bound_bytes,
            "promised_max_bytes": navigation.max_bytes,
            "promised_up_bytes": navigation.max_up_bytes,
            "promised_down_bytes": navigation.max_down_bytes,
            "uplink_max_bytes": max(up.values()),
            "downlink_max_bytes": max(down.values()),
            "uplink_off": self.off(navigation.up_bytes, up),
            "downlink_off": self.off(navigation.down_bytes, down),
            "dead_link_bytes": sum(self.transferred.delta[port].sent_bytes for cable in self.dead for port in (cable.a, cable.b)),
            "moved_flows": len(navigation.moved),
        }

    def metrics(self) -> list[Metric]:
        row = self.row()
        names = ("bound_max_bytes", "promised_max_bytes", "uplink_max_bytes", "downlink_max_bytes")
        return [Metric(name, row[name], "bytes") for name in names]
