"""How much of a flow each cable carries if every switch splits evenly over its equal-cost next hops, as hashing does on average.

Pure. Over the plan's own routes, so it holds for any topology. The busiest cable's load is what Dally and Towles call the channel
load: no routing of this kind completes faster than it allows, and a few large flows that hash badly take longer.
Source: Dally, Towles, Principles and Practices of Interconnection Networks (2004), 3.3 (from memory).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from emu.topology.model import Port
from emu.topology.plan import Plan, access_prefixes, via_of


class EvenSplit:
    """Of one plan. Shares are of a flow's bytes, by the switch port towards a switch that sends them."""

    def __init__(self, plan: Plan) -> None:
        prefixes = access_prefixes(plan.topology)
        self._peer = {port: planned.peer.node for port, planned in plan.ports.items()}
        self._via = {
            node.name: dict(zip(prefixes, via_of(node.routes, list(prefixes.values())), strict=True))
            for node in plan.nodes if node.forwards
        }
        self._shares: dict[tuple[str, str], Mapping[Port, float]] = {}

    def shares(self, source: Port, target: Port) -> Mapping[Port, float]:
        """From NIC to NIC. Their sum is the mean number of cables between switches on the way."""
        return self._between(self._peer[source], self._peer[target])

    def loads(self, flows: Iterable[tuple[Port, Port, int]]) -> Counter[Port]:
        """Bytes that each port sends for all `flows`, (source, target, bytes) each."""
        total = Counter()
        for source, target, size_bytes in flows:
            for port, share in self.shares(source, target).items():
                total[port] += share * size_bytes
        return total

    def _between(self, switch: str, target: str) -> Mapping[Port, float]:
        if (switch, target) not in self._shares:
            found = Counter()
            via = () if switch == target else self._via[switch][target]
            for port in (Port(switch, ifname) for ifname in via):
                found[port] += 1 / len(via)
                for further, share in self._between(self._peer[port], target).items():
                    found[further] += share / len(via)
            self._shares[switch, target] = found
        return self._shares[switch, target]
