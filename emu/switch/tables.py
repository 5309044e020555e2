"""The switch program's maps, filled from the plan: ports, uplinks, and the groups of uplinks that lead from leaf to leaf."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from emu.bpf.loader import Loaded, Map
from emu.errors import FabricError
from emu.fabric.fabric import Fabric
from emu.switch.byte_time import ByteTime
from emu.switch.leaves import LEAVES_MAX, UPLINKS_MAX, Leaf, Slots, leaves, numbering, reach
from emu.topology.model import Port
from emu.topology.plan import PortPlan, Route

GROUPS_MAX, WORD_BITS = 8192, 64  # switch.h
ETHERTYPE_IPV4 = b"\x08\0"
REACH = struct.Struct("=II")


class Tables:
    """All leaves of one fabric. `reach` gives the slots from leaf to leaf, by numbers, as they are loaded now."""

    def __init__(self, fabric: Fabric, loaded: Loaded) -> None:
        self.fabric, self._loaded = fabric, loaded
        self.leaves: list[Leaf] = leaves(fabric.plan)
        self.numbers = numbering(fabric.plan)
        self.reach: list[list[Slots]] = [[] for _ in self.leaves]
        self._groups: dict[Slots, int] = {}
        self.slots: dict[Port, tuple[Leaf, int]] = {
            port.port: (leaf, slot) for leaf in self.leaves for slot, port in enumerate(leaf.up)
        }

    def load(self, **settings: int) -> None:
        """Everything as planned, counters at 0; `settings` are the mode's own fields of switch_settings."""
        elided, full = self.fabric.plan.elided_sizes if self.fabric.elided else (0, 0)
        self._loaded.map("switch_settings").update(
            0, network=self.numbers.network, prefix_shift=self.numbers.shift, leaves=len(self.leaves),
            elided_bytes=elided, full_bytes=full, frame_ns=self.frame_ns, **settings,
        )
        pairs = self._loaded.map("switch_pairs")
        pairs.write_from(0, bytes(len(pairs.memory())))
        for flows in ("switch_flows", "switch_flowlets"):
            self._loaded.map(flows).clear()
        for leaf in self.leaves:
            self._load_leaf(leaf)
        self.reroute({leaf.name: leaf.node.routes for leaf in self.leaves})

    @property
    def frame_ns(self) -> int:
        """Kernel time of a whole frame on the fastest uplink."""
        rates = [self.fabric.settings[port.port].rate_bytes for leaf in self.leaves for port in leaf.up]
        return ByteTime.at(max(rates)).ns(self.fabric.plan.frame_bytes) if rates else 1

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """What the switches named in `routes` route by from now on; of others nothing changes."""
        for leaf in self.leaves:
            if leaf.name in routes:
                self._route(leaf, reach(leaf, routes[leaf.name], self.numbers))

    def leaf_state(self, leaf: Leaf) -> object:
        """struct switch_leaf of switch.h."""
        return self._loaded.map("switch_leaves").read(leaf.number)

    def flows(self) -> Map:
        """The map of the controller's paths."""
        return self._loaded.map("switch_flows")

    def _load_leaf(self, leaf: Leaf) -> None:
        self._loaded.map("switch_leaves").update(leaf.number, random=leaf.random_seed, hash_seed=leaf.node.hash_seed)
        for port in leaf.down:
            self._loaded.map("switch_ports").update(port.ifindex, leaf=leaf.number + 1)
        uplinks = self._loaded.map("switch_uplinks")
        packed = b"".join(uplinks.layout.value.pack(**self._uplink(port)) for port in leaf.up)
        uplinks.write_from(leaf.number * UPLINKS_MAX, packed)

    def _uplink(self, port: PortPlan) -> dict[str, object]:
        setting = self.fabric.settings[port.port]
        byte_time = ByteTime.at(setting.rate_bytes)
        return {
            "head": head_words(port), "ifindex": port.ifindex, "mult": byte_time.mult, "shift": byte_time.shift,
            "limit_ns": byte_time.ns(setting.limit_bytes),
        }

    def _route(self, leaf: Leaf, wanted: list[Slots]) -> None:
        row = b"".join(REACH.pack(self._group(slots) + 1 if slots else 0, 0) for slots in wanted)
        self._loaded.map("switch_reach").write_from(leaf.number * LEAVES_MAX, row)
        self.reach[leaf.number] = wanted

    def _group(self, slots: Slots) -> int:
        """Its number. Leaves share groups; none is changed or given up, as packets may be choosing from it."""
        if slots not in self._groups:
            if len(self._groups) == GROUPS_MAX:
                raise FabricError(f"more than {GROUPS_MAX} different sets of uplinks; fewer links may fail in one run")
            bits = sum(1 << slot for slot in slots)
            members = [bits >> at & (1 << WORD_BITS) - 1 for at in range(0, UPLINKS_MAX, WORD_BITS)]
            padded = [*slots, *(0 for _ in range(UPLINKS_MAX - len(slots)))]
            self._loaded.map("switch_groups").update(len(self._groups), count=len(slots), slots=padded, members=members)
            self._groups[slots] = len(self._groups)
        return self._groups[slots]


def head_words(port: PortPlan) -> list[int]:
    """Two bytes of padding and the Ethernet header of what goes out of `port`, as two words of the machine's."""
    return list(struct.unpack("=2Q", bytes(2) + bytes.fromhex((port.peer_mac + port.mac).replace(":", "")) + ETHERTYPE_IPV4))
