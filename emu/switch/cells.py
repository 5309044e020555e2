"""What a cell fabric costs, in closed form. Pure.

A packet crosses the fabric without its Ethernet header, in equal cells, the last one padded, each with a header of its own.
"""

from __future__ import annotations

CELL_HEADER_BYTES = 14
ETHERNET_BYTES = 14


def cells_of(frame_bytes: int, cell_bytes: int) -> int:
    """Cells that a frame becomes."""
    return -(-(frame_bytes - ETHERNET_BYTES) // cell_bytes)


def cell_tax(frame_bytes: int, cell_bytes: int) -> float:
    """Bytes on a fabric link for each byte on a server's link, less 1: what the fabric has to be faster by."""
    return cells_of(frame_bytes, cell_bytes) * (cell_bytes + CELL_HEADER_BYTES) / frame_bytes - 1
