"""What the cell fabric has done, from its maps' counters, in packets, cells and fabric nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

from emu.scale import Scale
from emu.switch.cells import CELL_HEADER_BYTES
from emu.switch.ddc_tables import Members, Tables
from emu.topology.model import Port


@dataclass(frozen=True)
class CreditWait:
    """Of the packets for one egress port: how many, and how long they waited in virtual output queues, the credit's round
    trip included."""

    packets: int
    total_ns: float
    max_ns: float

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.packets if self.packets else 0.0


@dataclass(frozen=True, kw_only=True)
class DdcCounters:
    """packets_cut = packets_delivered + packets_lost + what is under way; packets_local stay under one leaf, in one piece.

    cells_late: of packets given up before; cells_twice: duplicates; cells_refused: no room to put a packet together;
    cells_astray: no way to their leaf. held_packets_max: complete packets of one pair that waited for an older one.
    cells: sent out of each port between switches. waits: by NIC. cell_bytes: of packet in a cell.
    """

    packets_cut: int
    packets_local: int
    packets_delivered: int
    packets_lost: int
    cells_sent: int
    cells_received: int
    cells_late: int
    cells_twice: int
    cells_refused: int
    cells_astray: int
    held_packets_max: int
    cut_bytes: int
    cell_bytes: int
    cells: dict[Port, int]
    uplinks: tuple[Port, ...]
    waits: dict[Port, CreditWait]

    @property
    def packets(self) -> dict[Port, int]:
        """Cells given to each leaf's uplinks: what the uplinks' queues count as packets."""
        return {port: self.cells[port] for port in self.uplinks}

    @property
    def bytes(self) -> dict[Port, int]:
        return {port: cells * (self.cell_bytes + CELL_HEADER_BYTES) for port, cells in self.packets.items()}

    @property
    def cell_tax(self) -> float:
        """Bytes in cells for each byte of the packets that were cut, as their servers' links count them, less 1."""
        return self.cells_sent * (self.cell_bytes + CELL_HEADER_BYTES) / self.cut_bytes - 1 if self.cut_bytes else 0.0

    @property
    def credit_wait_max_ns(self) -> float:
        return max((wait.max_ns for wait in self.waits.values()), default=0.0)

    @property
    def credit_wait_mean_ns(self) -> float:
        packets = sum(wait.packets for wait in self.waits.values())
        return sum(wait.total_ns for wait in self.waits.values()) / packets if packets else 0.0

    def row(self) -> dict[str, float]:
        """For one line of a table."""
        return {
            "cell_tax": self.cell_tax, "cells": self.cells_sent, "cell_lost_packets": self.packets_lost,
            "credit_wait_mean_us": self.credit_wait_mean_ns / 1000, "credit_wait_max_us": self.credit_wait_max_ns / 1000,
        }


def made_packets(leaf: object) -> int:
    """Frames that a leaf (struct ddc_switch) had for its queues beyond those it received. Cells without a way count as made, so
    that they are missed; those of a packet that is never complete were taken in: DdcCounters.packets_lost says so."""
    return leaf.cells_out + leaf.cells_no_path - leaf.packets_in + leaf.packets_out - leaf.cells_in


def read_counters(tables: Tables, members: Members, scale: Scale, cell_bytes: int) -> DdcCounters:
    states = {node.name: tables.switch(node.name) for node in members.switches}
    leaves = [states[leaf.name] for leaf in members.leaves]
    nics = {port.peer: tables.nic(port) for leaf in members.leaves for port in leaf.down}
    return DdcCounters(
        packets_cut=sum(leaf.packets_in for leaf in leaves),
        packets_local=sum(leaf.packets_local for leaf in leaves),
        packets_delivered=sum(leaf.packets_out for leaf in leaves),
        packets_lost=sum(leaf.packets_lost for leaf in leaves),
        cells_sent=sum(leaf.cells_out for leaf in leaves),
        cells_received=sum(leaf.cells_in for leaf in leaves),
        cells_late=sum(leaf.cells_late for leaf in leaves),
        cells_twice=sum(leaf.cells_twice for leaf in leaves),
        cells_refused=sum(leaf.cells_no_room for leaf in leaves),
        cells_astray=sum(state.cells_no_path for state in states.values()),
        held_packets_max=max(leaf.held_max for leaf in leaves),
        cut_bytes=sum(leaf.bytes_in for leaf in leaves),
        cell_bytes=cell_bytes,
        cells=tables.cells_sent(),
        uplinks=tuple(port.port for leaf in members.leaves for port in leaf.up),
        waits={
            nic: CreditWait(state.packets, scale.fabric_ns(state.wait_ns), scale.fabric_ns(state.wait_max_ns))
            for nic, state in nics.items()
        },
    )
