"""Receiving NICs: an eBPF program counts what arrives, packet by packet, and takes RoCE off the host's stack.

Without it the host would answer each packet with "port unreachable". CE delivered is counted here and nowhere else:
a mark on a packet that was dropped later never shows. No Python runs per packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emu.fabric.bpf_filter import INGRESS, add_clsact, attach
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Batch
from emu.topology.model import Port


@dataclass(frozen=True)
class Received:
    """Since the program was attached; times in kernel ns of the first and last packet (0 if none)."""

    packets: int
    bytes: int
    ce_packets: int
    ect_packets: int
    cnp_packets: int
    first_ns: int
    last_ns: int


class Receivers:
    """Counts on every NIC of `nics`; they must not have a counter yet."""

    def __init__(self, fabric: Fabric, nics: Sequence[Port]) -> None:
        self._ifindex = {nic: fabric.ports[nic].ifindex for nic in nics}
        self._loaded = fabric.bpf().load("counter")
        for nic, ifindex in self._ifindex.items():
            batch = Batch()
            add_clsact(batch, ifindex, str(nic))
            attach(batch, ifindex, INGRESS, self._loaded.program_fd("counter"), "counter", str(nic))
            fabric.netlink(nic.node).run(batch)

    def read(self) -> dict[Port, Received]:
        """Counters of every NIC."""
        entries = self._loaded.map("nic_counters").read_all()
        return {nic: _received(entries.get(ifindex)) for nic, ifindex in self._ifindex.items()}


def _received(entry: object | None) -> Received:
    names = Received.__dataclass_fields__
    return Received(**{name: getattr(entry, name, 0) for name in names})
