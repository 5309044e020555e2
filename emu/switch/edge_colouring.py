"""Colours for the edges of a bipartite multigraph, so that no two edges of one colour meet.

König's theorem: as many colours as the largest degree are enough. One edge after the other: a colour free at both ends,
else one free at each end and the two swapped along the alternating path from the target, which can't lead back to the
source (an odd cycle). Edges times path length, no search. A vertex may be barred from some colours, as a leaf is from
the spine behind a broken cable; such colours go first, each as one matching that leaves no vertex with more edges than
colours. Exact with no colour barred, or one, wherever; several are taken one by one, which may leave an edge over.

Sources: König 1916; Gabow, Using Euler partitions to edge color bipartite multigraphs, 1976 (both from memory).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from emu.switch.covering_matching import covering_matching

Vertex = Hashable
NONE_BARRED: Mapping[Vertex, Collection[int]] = {}


def colour_edges(
    edges: Sequence[tuple[Vertex, Vertex]], colours: int, barred: Mapping[Vertex, Collection[int]] = NONE_BARRED
) -> list[int | None]:
    """A colour (0 … colours-1) for each (source vertex, target vertex); None for an edge that found none.

    Sources and targets must be different objects: this is what makes the graph bipartite. `barred`: vertex -> its
    forbidden colours. Nothing is None where no vertex has more edges than colours and none is barred.
    """
    colouring = _Colouring(edges, colours)
    special = sorted({colour for vertex in colouring.vertices for colour in barred.get(vertex, ())})
    for colour in special:
        colouring.match(colour, barred)
    colouring.hide(special)
    for edge in colouring.uncoloured():
        colouring.insert(edge)
    return colouring.colour_of


class _Colouring:
    """`free[v]`: bit c is set while colour c is unused at vertex v; `edge_at[v]`: colour -> edge."""

    def __init__(self, edges: Sequence[tuple[Vertex, Vertex]], colours: int) -> None:
        self.edges = edges
        self.vertices = list(dict.fromkeys(vertex for edge in edges for vertex in edge))
        self.colour_of: list[int | None] = [None] * len(edges)
        self._free = dict.fromkeys(self.vertices, (1 << colours) - 1)
        self._edge_at: dict[Vertex, dict[int, int]] = {vertex: {} for vertex in self.vertices}

    def uncoloured(self) -> list[int]:
        return [edge for edge, colour in enumerate(self.colour_of) if colour is None]

    def match(self, colour: int, barred: Mapping[Vertex, Collection[int]]) -> None:
        """Give `colour` to a matching of uncoloured edges whose ends may have it, the fullest vertices first."""
        left = self.uncoloured()
        slack = self._slack(left, barred)
        able = [edge for edge in left if not any(colour in barred.get(vertex, ()) for vertex in self.edges[edge])]
        for place in covering_matching([self.edges[edge] for edge in able], slack):
            self._put(able[place], colour)
        for vertex in self.vertices:
            self._free[vertex] &= ~(1 << colour)

    def _slack(self, left: Iterable[int], barred: Mapping[Vertex, Collection[int]]) -> dict[Vertex, int]:
        """Colours that a vertex may still get, minus edges that still need one."""
        slack = {}
        for vertex, free in self._free.items():
            slack[vertex] = free.bit_count() - sum(free >> colour & 1 for colour in barred.get(vertex, ()))
        for edge in left:
            for vertex in self.edges[edge]:
                slack[vertex] -= 1
        return slack

    def hide(self, colours: Iterable[int]) -> None:
        """No vertex gets these colours any more."""
        mask = ~sum(1 << colour for colour in colours)
        for vertex in self.vertices:
            self._free[vertex] &= mask

    def insert(self, edge: int) -> None:
        """Colour one more edge, if both of its ends have a colour left."""
        source, target = self.edges[edge]
        at_source, at_target = self._free[source], self._free[target]
        if not at_source or not at_target:
            return
        if not at_source & at_target:
            self._swap_along_path(target, _lowest(at_source), _lowest(at_target))
        self._put(edge, _lowest(self._free[source] & self._free[target]))

    def _swap_along_path(self, start: Vertex, taken: int, free: int) -> None:
        """`start` has an edge coloured `taken` and none coloured `free`; afterwards it is the other way round."""
        path, vertex, colour = [], start, taken
        while colour in self._edge_at[vertex]:
            edge = self._edge_at[vertex][colour]
            path.append((edge, colour))
            source, target = self.edges[edge]
            vertex = source if vertex == target else target
            colour = free if colour == taken else taken
        for edge, colour in path:
            self._take(edge, colour)
        for edge, colour in path:
            self._put(edge, free if colour == taken else taken)

    def _put(self, edge: int, colour: int) -> None:
        self.colour_of[edge] = colour
        for vertex in self.edges[edge]:
            self._edge_at[vertex][colour] = edge
            self._free[vertex] &= ~(1 << colour)

    def _take(self, edge: int, colour: int) -> None:
        self.colour_of[edge] = None
        for vertex in self.edges[edge]:
            del self._edge_at[vertex][colour]
            self._free[vertex] |= 1 << colour


def _lowest(bits: int) -> int:
    """Index of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
