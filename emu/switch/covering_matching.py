"""A matching of a bipartite multigraph that covers the vertices with the least slack.

A vertex that isn't covered looks for an alternating path to one that may be uncovered in its place: to a free vertex
of the other side, or to a covered one of its own side with more slack. Neither uncovers anything on the other side, so
the two sides don't disturb each other (Mendelsohn and Dulmage 1958: what can be covered on each side alone can be
covered on both at once; from memory).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

Vertex = Hashable


def covering_matching(edges: Sequence[tuple[Vertex, Vertex]], slack: Mapping[Vertex, int]) -> list[int]:
    """Indexes of the matching's edges, ascending. Sources and targets of `edges` must be different objects."""
    matching = _Matching(edges, slack)
    for vertex in sorted(matching.edges_at, key=lambda vertex: slack[vertex]):
        if vertex not in matching.edge_of:
            matching.cover(vertex)
    return sorted(set(matching.edge_of.values()))


class _Matching:
    """`edge_of`: covered vertex -> its edge of the matching."""

    def __init__(self, edges: Sequence[tuple[Vertex, Vertex]], slack: Mapping[Vertex, int]) -> None:
        self._edges, self._slack = edges, slack
        self.edge_of: dict[Vertex, int] = {}
        self.edges_at: dict[Vertex, list[int]] = {}
        for index, edge in enumerate(edges):
            for vertex in edge:
                self.edges_at.setdefault(vertex, []).append(index)

    def _other(self, edge: int, vertex: Vertex) -> Vertex:
        source, target = self._edges[edge]
        return source if vertex == target else target

    def cover(self, root: Vertex) -> None:
        """Breadth first over the vertices of the root's side; `came[v]`: the edge whose far end v is matched with."""
        came: dict[Vertex, tuple[Vertex, int]] = {}
        queue, seen = [root], set()
        for vertex in queue:
            for edge in self.edges_at[vertex]:
                far = self._other(edge, vertex)
                if far in seen:
                    continue
                seen.add(far)
                if far not in self.edge_of:
                    return self._flip(came, root, vertex, edge)
                mate = self._other(self.edge_of[far], far)
                came[mate] = (vertex, edge)
                if self._slack[mate] > self._slack[root]:
                    del self.edge_of[mate]
                    return self._flip(came, root, vertex, edge)
                queue.append(mate)
        return None

    def _flip(self, came: Mapping[Vertex, tuple[Vertex, int]], root: Vertex, vertex: Vertex, edge: int) -> None:
        """Give every vertex on the way back to the root the edge by which it was left."""
        while True:
            self.edge_of[vertex] = self.edge_of[self._other(edge, vertex)] = edge
            if vertex == root:
                return
            vertex, edge = came[vertex]
