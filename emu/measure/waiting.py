"""Where packets wait on their way through a spine-leaf: the bytes in all queues of a stage together, at their most.

    with Waiting(fabric, lb.installed.voqs) as waiting:
        transferred = run_messages(fabric, messages, transport, every_us=2, also=waiting.sample)
    row = waiting.row(transferred)

Stages in the order of the way: virtual output queues of the ingress leaf (lb=ddc), its uplinks, the spines, the egress leaf's
ports to NICs. A leaf's ports queue nothing else, so what waits there has met its receiver's link rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from emu.fabric.depth import DepthProbe
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.fabric.queue import tbf_parent
from emu.fabric.voq import Voq
from emu.measure.transfers import Transferred
from emu.switch.leaves import leaves
from emu.topology.model import Port

VOQS, UPLINKS, SPINES, EGRESS = "voqs", "uplinks", "spines", "egress"


class Waiting:
    """To be entered. `most_bytes` of each stage in any sample so far."""

    def __init__(self, fabric: Fabric, voqs: Mapping[str, Voq]) -> None:
        self._fabric, self._voqs = fabric, voqs
        self.ports = ports_by_stage(fabric)
        self.most_bytes = dict.fromkeys((VOQS, *self.ports), 0)
        self._probes: dict[str, list[DepthProbe]] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Waiting:
        settings = self._fabric.settings
        self._probes = {stage: [self._probe(port.node, settings[port].ifindex, tbf_parent(settings[port])) for port in ports]
                        for stage, ports in self.ports.items()}
        self._probes[VOQS] = [self._probe(leaf, voq.enter.ifindex) for leaf, voq in self._voqs.items()]
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def sample(self) -> None:
        for stage, probes in self._probes.items():
            self.most_bytes[stage] = max(self.most_bytes[stage], sum(probe.read() for probe in probes))

    def row(self, transferred: Transferred) -> dict[str, object]:
        """One line of a table; of the egress ports also what they marked and dropped."""
        egress = [transferred.delta[port] for port in self.ports[EGRESS]]
        return {f"{stage}_max_bytes": most for stage, most in self.most_bytes.items()} | {
            "egress_marked_packets": sum(port.marked_packets for port in egress),
            "egress_dropped_packets": sum(port.dropped_packets for port in egress),
        }

    def _probe(self, node: str, *where: int) -> DepthProbe:
        netlink = self._closing.enter_context(Netlink(self._fabric.netlink(node).netns))
        return DepthProbe(netlink, *where)


def ports_by_stage(fabric: Fabric) -> dict[str, list[Port]]:
    found = leaves(fabric.plan)
    names = {leaf.name for leaf in found}
    spines = [port.port for node in fabric.plan.nodes if node.forwards and node.name not in names for port in node.ports]
    return {UPLINKS: [port.port for leaf in found for port in leaf.up], SPINES: spines,
            EGRESS: [port.port for leaf in found for port in leaf.down]}
