"""How far packets went and how full that makes the cables: the run against the plan's routes.

A hop here is a cable between two switches. What switches sent to each other over what they sent to NICs is the mean number of
hops, by bytes, ACKs included; without drops it is that of the routes, whichever of equal-cost ways each flow was hashed to.
"""

from __future__ import annotations

from functools import cached_property

from emu.measure.line_rate import busiest_nic_us, line_us
from emu.measure.transfers import Transferred
from emu.topology.even_split import EvenSplit
from emu.topology.model import Port


class Hops:
    """Of one run, on any topology whose NICs are under switches."""

    def __init__(self, transferred: Transferred) -> None:
        self.transferred, self.plan = transferred, transferred.fabric.plan
        self._split = EvenSplit(self.plan)
        self._flows = [(source, target, size_bytes)
                       for (source, target, _), size_bytes in transferred.messages.connection_bytes.items()]

    @property
    def mean(self) -> float:
        """Measured: by the bytes that queues sent."""
        servers, delta = {server.name for server in self.plan.topology.servers}, self.transferred.delta
        sent = {port.port: delta[port.port].sent_bytes for node in self.plan.nodes if node.forwards for port in node.ports}
        down = sum(size for port, size in sent.items() if self.plan.ports[port].peer.node in servers)
        return (sum(sent.values()) - down) / down

    @cached_property
    def planned_loads(self) -> dict[Port, float]:
        """Payload bytes that each port between switches sends if equal-cost ways are used alike."""
        return self._split.loads(self._flows)

    @property
    def hashed_ratio(self) -> float:
        """Of all connections, those with more than one way: for the others the plan is no average but what happens."""
        return sum(any(share < 1 for share in self._split.shares(source, target).values())
                   for source, target, _ in self._flows) / len(self._flows)

    @property
    def planned_mean(self) -> float:
        """By the routes, for this traffic."""
        return sum(self.planned_loads.values()) / self.transferred.size_bytes

    @cached_property
    def nic_us(self) -> float:
        """Fabric time that the busiest NIC needs at line rate, headers included."""
        return busiest_nic_us(self.plan, self.transferred.messages)

    @property
    def planned_load(self) -> float:
        """Time that the busiest cable needs over the busiest NIC's: beyond 1 the network and not the NIC sets the time."""
        plan = self.plan
        busiest_us = max((line_us(plan, size, plan.ports[port].rate_bps) for port, size in self.planned_loads.items()), default=0)
        return busiest_us / self.nic_us

    def row(self) -> dict[str, float]:
        return {
            "mean_hops": self.mean, "planned_hops": self.planned_mean, "planned_load": self.planned_load,
            "hashed_ratio": self.hashed_ratio, "busbw_fraction": self.nic_us / self.transferred.completion_us,
        }
