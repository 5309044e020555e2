"""Where a run's bytes went on the wire, from the queues' own counters: under a leaf, over the spine, on scale-up links.

Frames with their headers, acknowledgements included. What a spine sends down did not stay under a leaf, so that is taken off
what the leaves send to NICs. Beside the counters, what the messages that change leaf must come to.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.measure.transfers import Transferred
from emu.nic.message import Message
from emu.topology.frame import ACK_BYTES, frames_bytes

SERVER, LEAF, SPINE = "server", "leaf", "spine"
NETWORK = (LEAF, SPINE)


class Wire:
    """One run on a spine-leaf; scale-up is whatever else a server has a cable to."""

    def __init__(self, transferred: Transferred) -> None:
        self.transferred = transferred
        plan = transferred.fabric.plan
        role = {node.name: node.role for node in plan.nodes}
        self._mtu_bytes = plan.topology.path_mtu_bytes
        self._ports = [(port.port, node.role, role[port.peer.node]) for node in plan.nodes for port in node.ports]
        self._leaf = {port.port: port.peer.node for port in plan.ports.values() if role[port.peer.node] == LEAF}

    @property
    def nic_bytes(self) -> int:
        """Sent by NICs towards leaves."""
        return self._sent(SERVER, lambda peer: peer == LEAF)

    @property
    def nic_packets(self) -> int:
        return self._sent(SERVER, lambda peer: peer == LEAF, "sent_packets")

    @property
    def uplink_bytes(self) -> int:
        """Sent by leaves towards spines."""
        return self._sent(LEAF, lambda peer: peer == SPINE)

    @property
    def leaf_local_bytes(self) -> int:
        """Sent by leaves to NICs without having crossed a spine; exact when no queue dropped."""
        return self._sent(LEAF, lambda peer: peer == SERVER) - self._sent(SPINE, lambda peer: peer == LEAF)

    @property
    def scale_up_bytes(self) -> int:
        """Sent by GPUs into their scale-up domain."""
        return self._sent(SERVER, lambda peer: peer not in NETWORK)

    def row(self) -> dict[str, object]:
        """Counters, and the least and most that the uplinks must show for the messages that change leaf."""
        crossing = [message for message in self.transferred.messages if self._changes_leaf(message)]
        least = sum(frames_bytes(message.size_bytes, self._mtu_bytes) for message in crossing)
        answers = sum(-(-message.size_bytes // self._mtu_bytes) for message in crossing)
        return {
            "all_uplinks_bytes": self.uplink_bytes, "leaf_local_bytes": self.leaf_local_bytes,
            "scale_up_wire_bytes": self.scale_up_bytes, "uplinks_least_bytes": least,
            "uplinks_most_bytes": least + answers * ACK_BYTES,
        }

    def _changes_leaf(self, message: Message) -> bool:
        return self._leaf.get(message.source) != self._leaf.get(message.target)

    def _sent(self, role: str, towards: Callable[[str], bool], counter: str = "sent_bytes") -> int:
        delta = self.transferred.delta
        return sum(getattr(delta[port], counter) for port, own, peer in self._ports if own == role and towards(peer))
