"""What it costs to send packets in cells, from the queues' own counters and in closed form; and what it saves.

For traffic that all changes leaf: each byte that NICs sent went up once, so what uplinks sent more is cell headers and padding.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.measure.beside import Row, beside
from emu.measure.metric import Metric
from emu.measure.transfers import Transferred
from emu.measure.wire import Wire
from emu.switch.cells import CELL_HEADER_BYTES, cells_of
from emu.topology.frame import frame_bytes


def tax_row(transferred: Transferred, cell_bytes: int) -> dict[str, float]:
    """uplink_tax: bytes sent by uplinks over those sent by NICs, less 1; formula_tax: what it must be if nothing was dropped
    or sent again. cell_bytes: 0 where packets stay in one piece."""
    wire = Wire(transferred)
    cells = _cells(transferred, wire.nic_packets, cell_bytes) if cell_bytes else 0
    in_cells = cells * (cell_bytes + CELL_HEADER_BYTES) if cell_bytes else wire.nic_bytes
    return {"uplink_tax": wire.uplink_bytes / wire.nic_bytes - 1, "formula_tax": in_cells / wire.nic_bytes - 1}


def _cells(transferred: Transferred, packets: int, cell_bytes: int) -> int:
    """Of all messages' packets, and one for each of the rest of `packets`: what answers is shorter than a cell."""
    mtu_bytes, cells = transferred.fabric.plan.topology.path_mtu_bytes, packets
    for size_bytes in transferred.messages.sizes:
        whole, rest = divmod(size_bytes, mtu_bytes)
        cells += whole * (cells_of(frame_bytes(mtu_bytes), cell_bytes) - 1)
        cells += cells_of(frame_bytes(rest), cell_bytes) - 1 if rest else 0
    return cells


def times_over_ddc(rows: Sequence[Row], apart: Sequence[str]) -> list[Metric]:
    """Completion time over that of lb=ddc, for each row that has one with which it shares what is named in `apart`."""
    return [
        Metric(
            "_".join(("time_over_ddc", row["lb"], *(str(row[name]) for name in apart))),
            row["completion_us"] / ddc["completion_us"], "ratio",
            note=f"{row['completion_us']:,.1f} us, in cells {ddc['completion_us']:,.1f} us",
        )
        for ddc, row in beside(rows, apart, "lb", "ddc")
    ]
