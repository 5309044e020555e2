"""A cable that dies during a run, and how long it takes until every connection moves again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emu.fabric.fabric import Fabric
from emu.fabric.failure import Follower, LinkEvent, LinkEvents
from emu.measure.transfers import Transferred
from emu.topology.model import Port
from emu.units import us

TICK_US = 1.0  # how late a link may die; fabric time


@dataclass(frozen=True)
class Events:
    """`tick` is to be called every `every_us` (0: there is nothing to come)."""

    fail_us: float = 0
    every_us: float = 0
    live: LinkEvents | None = None

    def tick(self) -> None:
        if self.live:
            self.live.tick()

    def row(self, transferred: Transferred) -> dict[str, object]:
        """From the failure until each connection that wasn't complete has got a byte: the slowest's time."""
        if not self.live:
            return {}
        scale = transferred.fabric.scale
        samples = [(scale.fabric_ns(sample.at_ns) / 1000, sample.placed) for sample in transferred.samples]
        before = [placed for at_us, placed in samples if at_us <= self.fail_us] or [(0,) * len(transferred.connections)]
        waiting = {at for at, placed in enumerate(before[-1]) if placed < transferred.connection_bytes[at]}
        for at_us, placed in samples:
            if at_us > self.fail_us:
                waiting -= {at for at in waiting if placed[at] > before[-1][at]}
                if not waiting:
                    return {"moves_again_us": at_us - self.fail_us}
        return {"moves_again_us": transferred.completion_us - self.fail_us}


@contextlib.contextmanager
def failing(fabric: Fabric, cable: str, fail_us: int, repair_us: int, followers: Sequence[Follower]) -> Iterator[Events]:
    """`cable`: one of its ends, as leaf0:up0; "" for none. UsageError: not a cable between switches."""
    if not cable:
        yield Events()
        return
    port = Port.parse(cable)
    events = [LinkEvent(at_ns=us(fail_us), port=port)]
    if repair_us:
        events.append(LinkEvent(at_ns=us(repair_us), port=port, up=True))
    with LinkEvents(fabric, events, followers=followers) as live:
        yield Events(fail_us, TICK_US, live)
