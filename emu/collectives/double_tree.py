"""NCCL's tree: two binary trees over the servers, each for half of the data, with a chain through the GPUs of each server.

A server that is an inner node of one tree is a leaf of the other (for an odd number of servers, all but one are), so that
every NIC sends and receives about as much as in a ring; what is left of the incast is its burst: two children answer at once.
Channel c < C runs on tree 0 and channel C + c on tree 1; both enter and leave servers on rail c, and their chains begin with
GPU c.
Source: NCCL src/graph/trees.cc (ncclGetBtree, ncclGetDtree), connect.cc (ncclTopoPreset, connectTrees), search.cc (with
NCCL_CROSS_NIC=0 both NICs of a channel are the same; in a pattern with two GPUs the second reaches it by PXN).
"""

from __future__ import annotations

from emu.collectives.cut import need_at_least_one
from emu.collectives.placement import Placement
from emu.collectives.schedule import Schedule
from emu.collectives.tree import Edge, Tree, over_trees, tree_chunk_bytes
from emu.errors import unknown

# which GPU of the chain takes the first and the second child; the parent is always the first GPU's (connect.cc)
PATTERNS = {"balanced": (1, 0), "split": (1, 1), "tree": (0, 0)}


def double_tree_all_reduce(
    placement: Placement, size_bytes: int, *, channels: int = 1, chunk_bytes: int | None = None,
    pattern: str = "balanced", only_scale_out: bool = False,
) -> Schedule:
    """N servers of g GPUs, 2·channels trees: 2(n - 1)·size bytes, of which 2(N - 1)·size between servers.

    pattern=tree: 2(ceil(log2 N) + g - 1) steps a chunk, for N > 1. balanced, split: up to one more hop per server on the
    way, each way, where a child hangs at the second GPU. chunk_bytes=None takes NCCL's rule. only_scale_out=True
    lists what `scale_out_only` leaves of it, without making the rest first.
    """
    need_at_least_one(size_bytes=size_bytes, channels=channels)
    if pattern not in PATTERNS:
        raise unknown("tree pattern", pattern, PATTERNS)
    servers, gpus = placement.servers, placement.gpus_per_server
    depth = gpus - 1 + servers.bit_length() - 1
    chunk = chunk_bytes or tree_chunk_bytes(size_bytes, 2 * channels, depth)
    need_at_least_one(chunk_bytes=chunk)
    trees = [_server_tree(placement, half, channel, pattern) for half in (0, 1) for channel in range(channels)]
    return over_trees("double_tree", placement, size_bytes, trees, chunk, only_scale_out)


def double_tree_parents(nodes: int, half: int) -> dict[int, tuple[int, int]]:
    """Every node but the root of tree `half` (0 or 1): (its parent, 0 if it is the parent's first child, 1 if the second).

    Tree 1 is tree 0 mirrored for an even number of nodes, shifted by one for an odd one.
    """
    parents = _binary_parents(nodes)
    if not half:
        return parents
    if nodes % 2:
        return {(node + 1) % nodes: ((up + 1) % nodes, which) for node, (up, which) in parents.items()}
    return {nodes - 1 - node: (nodes - 1 - up, which) for node, (up, which) in parents.items()}


def _binary_parents(nodes: int) -> dict[int, tuple[int, int]]:
    """Alternates leaves and inner nodes: a node's lowest set bit is its height above the leaves; node 0 is the root."""
    parents = {}
    for node in range(1, nodes):
        bit = node & -node
        up = (node ^ bit) | bit << 1
        if up >= nodes:
            up = node ^ bit
        parents[node] = (up, 0 if node < up else 1)
    return parents


def _server_tree(placement: Placement, half: int, channel: int, pattern: str) -> Tree:
    edges = {}
    for server in range(placement.servers):
        for gpu in range(channel + 1, channel + placement.gpus_per_server):
            rank, above = placement.rank(server, gpu), placement.rank(server, gpu - 1)
            edges[rank] = Edge(above, placement.rails(rank, above))
    for server, (up, which) in double_tree_parents(placement.servers, half).items():
        rank, parent = placement.rank(server, channel), placement.rank(up, channel + PATTERNS[pattern][which])
        edges[rank] = Edge(parent, placement.rails(rank, parent, through=channel))
    return Tree(edges)
