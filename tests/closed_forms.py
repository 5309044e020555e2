"""Steps and bytes of every collective by the formulas of its docstring, for unit and integration tests."""

from __future__ import annotations

from emu.collectives.placement import Placement


def closed_form(name: str, place: Placement, size: int) -> tuple[int, int]:
    """(steps, bytes of all transfers) by the formulas of the docstrings."""
    n, servers, gpus = place.ranks, place.servers, place.gpus_per_server
    log2 = (servers - 1).bit_length()
    block_bytes = sum(sorted((size // n + (r < size % n) for r in range(n)), reverse=True)) * (n - 1)
    if name.startswith("all_to_all"):
        return all_to_all_steps(name, place), block_bytes + relayed_bytes(name, place, size)
    return {
        "ring": (2 * (n - 1), 2 * (n - 1) * size),
        "reduce_scatter": (n - 1, (n - 1) * size),
        "all_gather": (n - 1, (n - 1) * size),
        "broadcast": (n - 1, (n - 1) * size),
        "send_recv": (1, n * size),
        "tree": (2 * (n.bit_length() - 1), 2 * (n - 1) * size),
        "double_tree": (2 * double_tree_hops(place), 2 * (n - 1) * size),
        "nvls": (4, 2 * (n + 1) * size),
        "nvls_tree": (4 + 2 * log2, (2 * servers * (gpus + 1) + 2 * (servers - 1)) * size),
        "collnet_direct": (4 if gpus > 1 else 2, 2 * n * size),
        "collnet_chain": (2 * gpus, 2 * n * size),
    }[name]


def double_tree_hops(place: Placement) -> int:
    """NCCL's balanced pattern: a first child hangs one GPU further down the chain than the parent server's head."""
    heads = {0: 0}
    for node in sorted(range(1, place.servers), key=lambda node: -(node & -node)):  # parents before children
        bit = node & -node
        up = node ^ bit | bit << 1
        up = up if up < place.servers else node ^ bit
        heads[node] = heads[up] + 1 + (node < up and place.gpus_per_server > 1)
    return max(heads.values()) + place.gpus_per_server - 1


def all_to_all_steps(name: str, place: Placement) -> int:
    burst, pxn = "burst" in name, name.endswith("pxn")
    if not pxn:
        return 1 if burst else -(-(place.ranks - 1) // 8)
    rounds = 1 if burst else -(-(place.servers - 1) // max(1, 8 // place.gpus_per_server))
    return rounds * (2 if place.gpus_per_server > 1 else 1) if place.servers > 1 else 1


def relayed_bytes(name: str, place: Placement, size: int) -> int:
    block = [size // place.ranks + (r < size % place.ranks) for r in range(place.ranks)]
    elsewhere = (place.servers - 1) * (place.gpus_per_server - 1)
    return elsewhere * sum(block) if name.endswith("pxn") else 0
