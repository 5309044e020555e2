"""lb=ddc: the leaves and spines as one distributed switch of packet boxes (NCP) and cell boxes (NCF).

    with Ddc().install(fabric) as cells, Engine(fabric, messages, transport) as engine:
        engine.run(limit_s=10)
        cells.counters().credit_wait_max_ns

A packet waits at its ingress leaf, in the virtual output queue of its egress port, until that port gives it a credit; then it
is cut into equal cells, each of which takes the next link, and put together at the egress leaf. Servers see a router with a
short queue: no packet overtakes another, none is changed but for its TTL.
Source: AT&T's specification of the distributed disaggregated chassis (OCP, 2019); Broadcom's Jericho3-AI and Ramon3 for sizes
and for the credits; Meta's DSF; domain facts 8. How long a credit takes is no published figure: credit_rtt_ns is an assumption.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from emu.errors import FabricError, MissingFeature, UsageError
from emu.fabric import voq
from emu.fabric.bpf_filter import INGRESS, add_clsact, attach, remove_clsact
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Batch
from emu.fabric.nodrop import set_nodrop
from emu.fabric.probe import probe
from emu.switch.cells import CELL_HEADER_BYTES, ETHERNET_BYTES, cells_of
from emu.switch.ddc_counters import DdcCounters, made_packets, read_counters
from emu.switch.ddc_tables import Members, Tables
from emu.topology.plan import PortPlan, Route
from emu.units import us

OBJECT = "ddc"
CELL_BYTES_MIN, CELL_BYTES_MAX, CELLS_MAX = 128, 2112, 64  # ddc.h; a shorter cell could be as long as an elided packet
SPEEDUP_MAX = 4.0  # of no product; a slip otherwise


@dataclass(frozen=True, kw_only=True)
class Ddc:
    """Fabric time. cell_bytes: of the packet, in each cell, besides its header of 14 bytes.

    credit_rtt_ns: what a packet waits for its credit on an idle fabric. credit_speed: rate of the credits as a share of the
    port's. reassembly_timeout_ns: a packet that holds complete ones back for so long is given up.
    fabric_speedup: the links between switches are faster by this factor, to make up for the cell tax: a Jericho3-AI has 18 ports
    of 800 Gb/s to servers and 20 to the fabric. 1 leaves them as the topology has them.
    """

    cell_bytes: int = 256
    credit_rtt_ns: int = us(1)
    credit_speed: float = 1.0
    reassembly_timeout_ns: int = us(20)
    fabric_speedup: float = 20 / 18

    def __post_init__(self) -> None:
        if not CELL_BYTES_MIN <= self.cell_bytes <= CELL_BYTES_MAX:
            raise UsageError(f"cell_bytes={self.cell_bytes}; want {CELL_BYTES_MIN} to {CELL_BYTES_MAX}")
        if self.credit_rtt_ns < 0:
            raise UsageError(f"credit_rtt_ns={self.credit_rtt_ns}; want 0 or more")
        if self.reassembly_timeout_ns < 1:
            raise UsageError(f"reassembly_timeout_ns={self.reassembly_timeout_ns}; want 1 or more")
        if not 0 < self.credit_speed <= 1:
            raise UsageError(f"credit_speed={self.credit_speed:g}; want a share of the port's rate, above 0 and at most 1")
        if not 1 <= self.fabric_speedup <= SPEEDUP_MAX:
            raise UsageError(f"fabric_speedup={self.fabric_speedup:g}; want 1 to {SPEEDUP_MAX:g}")

    def install(self, fabric: Fabric) -> InstalledDdc:
        """To be entered: the leaves and spines of `fabric` are a cell fabric within the block.

        UsageError: packets and cells don't fit each other. TopologyError: more switches or NICs than there is room for.
        MissingFeature: a kernel without fq, or with several CPUs.
        """
        return InstalledDdc(fabric, self)


class InstalledDdc:
    """The cell fabric at work. `voqs`: leaf -> the virtual output queues for all egress ports together."""

    def __init__(self, fabric: Fabric, mode: Ddc) -> None:
        require_features(fabric)
        check_cells(mode, fabric.plan.frame_bytes)
        self.fabric, self.mode = fabric, mode
        self._members = Members(fabric.plan)
        self.voqs = {
            leaf.name: voq.voq_of(leaf.name, self._members.first_free_ifindex + 2 * leaf.number) for leaf in self._members.leaves
        }
        self._loaded = fabric.bpf().load(OBJECT)
        self._tables = Tables(fabric, self._loaded, self._members)
        self._undo = ExitStack()

    def __enter__(self) -> InstalledDdc:
        elided = self.fabric.plan.elided_sizes if self.fabric.elided else None
        with ExitStack() as undo:
            for leaf, queues in self.voqs.items():
                undo.callback(self._remove_voq, leaf)
                voq.install(self.fabric.netlink(leaf), queues, self.fabric.plan.link_mtu_bytes, elided)
            voq.wait_until_running(self.voqs, {leaf: self.fabric.netlink(leaf) for leaf in self.voqs})
            undo.callback(self._restore_links)
            self._change_links(nodrop=True, speedup=self.mode.fabric_speedup)
            self._load()
            undo.callback(setattr, self.fabric, "made", dict)
            self.fabric.made = self._made
            for node, programs in self._programs().items():
                undo.callback(self._detach, node, programs)
                self._attach(node, programs)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """Spray over these from now on: switch -> all its routes, for those that have new ones."""
        self._tables.reroute(routes)

    def counters(self) -> DdcCounters:
        """Since the start of the block."""
        return read_counters(self._tables, self._members, self.fabric.scale, self.mode.cell_bytes)

    def _made(self) -> dict[str, int]:
        return {leaf.name: made_packets(self._tables.switch(leaf.name)) for leaf in self._members.leaves}

    def _load(self) -> None:
        scale, plan = self.fabric.scale, self.fabric.plan
        elided, full = (size - ETHERNET_BYTES for size in plan.elided_sizes) if self.fabric.elided else (0, 0)
        self._tables.load(
            self.voqs, self.mode.credit_speed, credit_rtt_ns=scale.kernel_ns(self.mode.credit_rtt_ns),
            timeout_ns=scale.kernel_ns(self.mode.reassembly_timeout_ns), cell_bytes=self.mode.cell_bytes,
            elided_bytes=elided, full_bytes=full,
        )

    def _change_links(self, nodrop: bool, speedup: float) -> None:
        """Of the ports between switches."""
        set_nodrop(self.fabric, (port.port for port in self._members.links), nodrop)
        for port in self._members.links if self.mode.fabric_speedup > 1 else ():
            self.fabric.limit_nic(port.port, round(port.rate_bps * speedup))

    def _restore_links(self) -> None:
        with suppress(FabricError):  # the fabric may be gone already
            self._change_links(nodrop=False, speedup=1.0)

    def _programs(self) -> dict[str, list[tuple[PortPlan, str]]]:
        """Switch -> what runs on the ingress of which port."""
        found = {node.name: [(port, "ddc_ncf") for port in node.ports] for node in self._members.switches}
        for leaf in self._members.leaves:
            inside = [(self.voqs[leaf.name].leave, "ddc_cut")]
            found[leaf.name] = inside + [(port, "ddc_out") for port in leaf.up] + [(port, "ddc_in") for port in leaf.down]
        return found

    def _attach(self, node: str, programs: Sequence[tuple[PortPlan, str]]) -> None:
        batch = Batch()
        for port, program in programs:
            add_clsact(batch, port.ifindex, str(port.port))
            attach(batch, port.ifindex, INGRESS, self._loaded.program_fd(program), program, str(port.port))
        self.fabric.netlink(node).run(batch)

    def _detach(self, node: str, programs: Sequence[tuple[PortPlan, str]]) -> None:
        batch = Batch()
        for port, _ in programs:
            remove_clsact(batch, port.ifindex, str(port.port))
        with suppress(FabricError):  # what was never attached, because attaching failed half-way
            self.fabric.netlink(node).run(batch)

    def _remove_voq(self, leaf: str) -> None:
        with suppress(FabricError):
            voq.remove(self.fabric.netlink(leaf), self.voqs[leaf])


def require_features(fabric: Fabric) -> None:
    """MissingFeature if this kernel can't hold packets back, or several CPUs would share a leaf's state."""
    if lacks := probe().lacks("sch_fq"):
        raise MissingFeature(f"lb=ddc needs sch_fq for its output queues; this kernel lacks it ({lacks}): use --clock virtual")
    if fabric.marker == "bpf":
        raise MissingFeature("lb=ddc needs sch_red: cells must not be dropped where they can't be marked; use --clock virtual")
    if (os.cpu_count() or 1) > 1:
        raise MissingFeature(f"lb=ddc needs one CPU for a leaf's state, this machine has {os.cpu_count()}; use --clock virtual")


def check_cells(mode: Ddc, frame_bytes: int) -> None:
    """UsageError if a packet of `frame_bytes` would be too many cells, or a cell longer than it."""
    if cells_of(frame_bytes, mode.cell_bytes) > CELLS_MAX:
        fits = -(-(frame_bytes - ETHERNET_BYTES) // CELLS_MAX)
        raise UsageError(
            f"cell_bytes={mode.cell_bytes} cuts {frame_bytes} bytes into {cells_of(frame_bytes, mode.cell_bytes)} cells, "
            f"more than {CELLS_MAX}; want {fits} or more"
        )
    if mode.cell_bytes + CELL_HEADER_BYTES > frame_bytes:
        raise UsageError(
            f"cell_bytes={mode.cell_bytes} is more than a packet: frames have {frame_bytes} bytes; "
            f"want at most {frame_bytes - CELL_HEADER_BYTES}"
        )
