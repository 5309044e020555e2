"""A cable that dies during a run, and how long it takes until every connection moves again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.fabric.failure import Follower, LinkEvent, LinkEvents
from emu.measure import conservation
from emu.measure.transfers import Transferred
from emu.topology.model import Link, Port
from emu.units import us

NONE = "none"
TICK_US = 1.0  # how late a link may die; fabric time


@dataclass(frozen=True)
class Cable:
    """`port`: one of its ends, as leaf0:up0; "" for none. Dies at fail_us, is back at repair_us (0: never); fabric time."""

    port: str
    fail_us: float
    repair_us: float


@dataclass(frozen=True)
class Events:
    """`tick` is to be called every `every_us` (0: there is nothing to come)."""

    fail_us: float = 0
    every_us: float = 0
    live: LinkEvents | None = None
    dead: Sequence[Link] = ()

    def tick(self) -> None:
        if self.live:
            self.live.tick()

    def row(self, transferred: Transferred) -> dict[str, object]:
        """Packets lost at the cable, and the time until every connection has got a byte that was sent since."""
        if not self.live:
            return {}
        lost = conservation.lost_at(transferred.fabric.plan, transferred.delta, self.dead, transferred.made)
        return {"lost_packets": lost, "moves_again_us": self._moves_again_us(transferred)}

    def _moves_again_us(self, transferred: Transferred) -> float:
        """The slowest of the connections that weren't complete. What is past the cable already still arrives: only more than
        a window's bytes, or the last, were sent after the failure."""
        scale, plan, total = transferred.fabric.scale, transferred.fabric.plan, transferred.connection_bytes
        window_bytes = transferred.transport.window_packets * plan.topology.path_mtu_bytes
        samples = [(scale.fabric_ns(sample.at_ns) / 1000, sample.placed) for sample in transferred.samples]
        before = [placed for at_us, placed in samples if at_us <= self.fail_us] or [(0,) * len(transferred.connections)]
        wanted = [min(placed + window_bytes + 1, total[at]) for at, placed in enumerate(before[-1])]
        waiting = {at for at, placed in enumerate(before[-1]) if placed < wanted[at]}
        for at_us, placed in samples:
            if at_us > self.fail_us:
                waiting -= {at for at in waiting if placed[at] >= wanted[at]}
                if not waiting:
                    return at_us - self.fail_us
        return transferred.completion_us - self.fail_us


@contextlib.contextmanager
def failing(fabric: Fabric, cable: Cable, followers: Sequence[Follower]) -> Iterator[Events]:
    """UsageError: not a cable between switches."""
    if not cable.port:
        yield Events()
        return
    port = Port.parse(cable.port)
    events = [LinkEvent(at_ns=us(cable.fail_us), port=port)]
    if cable.repair_us:
        events.append(LinkEvent(at_ns=us(cable.repair_us), port=port, up=True))
    with LinkEvents(fabric, events, followers=followers) as live:
        yield Events(cable.fail_us, TICK_US, live, fabric.plan.topology.links_at(port))


@contextlib.contextmanager
def dead(fabric: Fabric, name: str, followers: Sequence[Follower]) -> Iterator[list[Link]]:
    """The cable at port `name` (leaf0:up0; or "none") is dead, and every switch and follower knows, before anything is sent."""
    if name == NONE:
        yield []
        return
    port = Port.parse(name)
    with LinkEvents(fabric, [LinkEvent(at_ns=0, port=port)], convergence_ns=0, followers=followers) as events:
        events.tick()
        yield fabric.plan.topology.links_at(port)
