"""Links that go down and come up while traffic runs, and the routing that follows.

At its time a cable's two ends go down: their queues are lost, and the two switches at once stop using it (the kernel drops the
next hop; followers are told). All others go on sending that way until `convergence_ns` later, as a routing protocol needs its
time to withdraw a path: then every switch has the shortest paths without the dead links. A link that comes up is used after
the same delay. The switch programs follow the same routes as the kernel (emu.switch).
Source: linux/net/ipv4/fib_semantics.c (fib_sync_down_dev, fib_rebalance).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from emu.errors import FabricError, UsageError
from emu.fabric import link, routes
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import REPLACE, Batch
from emu.fabric.wait import wait_until_empty
from emu.topology.model import Link, Port
from emu.topology.plan import Route, routes_without
from emu.units import us

CONVERGENCE_NS = us(100)  # of a fabric whose switches detect by loss of light and withdraw in hardware; a BGP one needs ms
UP_TIMEOUT_S = 5.0
Routes = Mapping[str, Sequence[Route]]


class Follower(Protocol):
    """What must know of new routes besides the kernel: a load-balancing mode, a controller."""

    def reroute(self, routes: Routes) -> None:
        """Switch -> all its routes, for those that have new ones."""


@dataclass(frozen=True, kw_only=True)
class LinkEvent:
    """`at_ns`: fabric time since the start. `port`: either end of the cable."""

    at_ns: int
    port: Port
    up: bool = False


@dataclass(order=True, frozen=True)
class _Step:
    due_ns: int  # kernel time since the start
    number: int
    do: Callable[[], None]


class LinkEvents:
    """To be entered before the traffic; `tick` does what is due and is what Engine.run wants as its `sample`.

    Leaving it makes every link and route as planned again. UsageError: a port without a cable between switches.
    """

    def __init__(
        self, fabric: Fabric, events: Iterable[LinkEvent], *, convergence_ns: int = CONVERGENCE_NS,
        followers: Sequence[Follower] = (),
    ) -> None:
        self.fabric, self._followers = fabric, followers
        self._switches = {node.name: node for node in fabric.plan.nodes if node.forwards}
        self._installed = {name: node.routes for name, node in self._switches.items()}
        self._dead: set[Link] = set()
        self._known: set[Link] = set()
        self._steps = self._plan_steps(sorted(events, key=lambda event: event.at_ns), convergence_ns)
        self._start_ns: int | None = None
        self.done_ns: list[int] = []

    def __enter__(self) -> LinkEvents:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(FabricError):  # the fabric may be gone already
            self.restore()

    def start(self) -> None:
        """Time counts from here; else from the first tick."""
        self._start_ns = time.monotonic_ns()

    def tick(self) -> None:
        """Do what is due. `done_ns` has the kernel time (CLOCK_MONOTONIC) at which each step was done."""
        if self._start_ns is None:
            self.start()
        while self._steps and self._steps[0].due_ns <= time.monotonic_ns() - self._start_ns:
            self._steps.pop(0).do()
            self.done_ns.append(time.monotonic_ns())

    @property
    def finished(self) -> bool:
        return not self._steps

    def restore(self) -> None:
        """Every link up, every route as planned; what has not happened yet won't."""
        self._steps.clear()
        ends = {port.node for cable in self._dead | self._known for port in (cable.a, cable.b)}
        for cable in sorted(self._dead, key=str):
            self._bring_up(cable)
        self._known.clear()
        self._install({name: node.routes for name, node in self._switches.items()}, ends)

    def _plan_steps(self, events: Sequence[LinkEvent], convergence_ns: int) -> list[_Step]:
        scale, steps = self.fabric.scale, []
        for event in events:
            cable = self._cable(event.port)
            change, learn = (self._bring_up, self._learn_up) if event.up else (self._take_down, self._learn_down)
            steps.append(_Step(scale.kernel_ns(event.at_ns), len(steps), lambda do=change, what=cable: do(what)))
            due_ns = scale.kernel_ns(event.at_ns + convergence_ns)
            steps.append(_Step(due_ns, len(steps), lambda do=learn, what=cable: do(what)))
        return sorted(steps)

    def _cable(self, port: Port) -> Link:
        for cable in self.fabric.plan.topology.links_at(port):
            if {cable.a.node, cable.b.node} <= self._switches.keys():
                return cable
        raise UsageError(f"{port} has no cable to another switch; want a switch's port towards a switch, like leaf0:up0")

    def _take_down(self, cable: Link) -> None:
        if cable in self._dead:
            return
        self._dead.add(cable)
        for port in self._ends(cable):
            batch = Batch()
            link.take_down(batch, port.ifindex, str(port.port))
            self.fabric.netlink(port.port.node).run(batch)
        at_ends = routes_without(self.fabric.plan, self._known | {cable})
        self._tell({end.port.node: at_ends[end.port.node] for end in self._ends(cable)})

    def _bring_up(self, cable: Link) -> None:
        if cable not in self._dead:
            return
        self._dead.remove(cable)
        ends = self._ends(cable)
        for port in ends:
            batch = Batch()
            link.bring_up(batch, port.ifindex, str(port.port))
            self.fabric.netlink(port.port.node).run(batch)
        wait_until_empty(
            lambda: [name for end in ends for name in link.not_running([end], link.read(self.fabric.netlink(end.port.node)))],
            UP_TIMEOUT_S, "ports up again",
        )
        for port in ends:
            batch = Batch()
            routes.neighbour(batch, port)
            self.fabric.netlink(port.port.node).run(batch)

    def _learn_down(self, cable: Link) -> None:
        self._known.add(cable)
        self._converge(cable)

    def _learn_up(self, cable: Link) -> None:
        self._known.discard(cable)
        self._converge(cable)

    def _converge(self, cable: Link) -> None:
        """All switches route by what is known now; the cable's ends also put back what the kernel has taken away."""
        usable = routes_without(self.fabric.plan, self._known)
        self._install(usable, {cable.a.node, cable.b.node})

    def _install(self, wanted: Routes, again: set[str]) -> None:
        changed = {name: tuple(new) for name, new in wanted.items() if name in again or tuple(new) != self._installed[name]}
        for name, new in changed.items():
            self._replace(name, new)
        self._installed.update(changed)
        self._tell(changed)

    def _replace(self, name: str, new: Sequence[Route]) -> None:
        netlink, node = self.fabric.netlink(name), self._switches[name]
        batch = Batch()
        for wanted in new:
            routes.route(batch, node, wanted, REPLACE)
        netlink.run(batch)
        kept = {wanted.prefix for wanted in new}
        for old in self._installed[name]:
            if old.prefix not in kept:
                batch = Batch()
                routes.remove_route(batch, node, old)
                with suppress(FabricError):  # the kernel has taken it away with its port
                    netlink.run(batch)

    def _tell(self, changed: Routes) -> None:
        for follower in self._followers:
            follower.reroute(changed)

    def _ends(self, cable: Link):
        return [self.fabric.ports[cable.a], self.fabric.ports[cable.b]]
