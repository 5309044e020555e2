"""Promises about the colouring: König's bound is reached, edges of one colour never meet, bars are kept."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from emu.switch.covering_matching import covering_matching
from emu.switch.edge_colouring import colour_edges

SIDE = 9
sources = st.integers(0, SIDE - 1).map(lambda i: ("source", i))
targets = st.integers(0, SIDE - 1).map(lambda i: ("target", i))
multigraphs = st.lists(st.tuples(sources, targets), max_size=120)
bars = st.dictionaries(st.one_of(sources, targets), st.sets(st.integers(0, 5), max_size=3))


def degrees(edges):
    return Counter(vertex for edge in edges for vertex in edge)


def meetings(edges, colour_of):
    """(vertex, colour) that two edges share."""
    coloured = [(edge, colour) for edge, colour in zip(edges, colour_of, strict=True) if colour is not None]
    uses = Counter((vertex, colour) for edge, colour in coloured for vertex in edge)
    return [use for use, times in uses.items() if times > 1]


@given(multigraphs)
def test_as_many_colours_as_the_largest_degree_are_enough(edges):
    colours = max(degrees(edges).values(), default=1)
    colour_of = colour_edges(edges, colours)
    assert None not in colour_of, f"{colours} colours, yet {colour_of.count(None)} of {len(edges)} edges have none"
    assert set(colour_of) <= set(range(colours)), f"colours {set(colour_of)}, allowed 0 to {colours - 1}"
    assert not meetings(edges, colour_of), f"two edges of one colour at {meetings(edges, colour_of)}"


@given(multigraphs, st.integers(0, 4))
def test_too_few_colours_leave_edges_without_one_but_none_meet(edges, colours):
    colour_of = colour_edges(edges, colours)
    left = colour_of.count(None)
    least = max((degree - colours for degree in degrees(edges).values()), default=0)
    assert left >= least, f"{left} uncoloured, at least {least} must be"
    assert not meetings(edges, colour_of)


@given(multigraphs, st.integers(3, 6), bars)
def test_a_barred_colour_is_never_given(edges, colours, barred):
    colour_of = colour_edges(edges, colours, barred)
    given_out = zip(edges, colour_of, strict=True)
    wrong = [edge for edge, colour in given_out if any(colour in barred.get(vertex, ()) for vertex in edge)]
    assert not wrong, f"edges {wrong} have a colour barred at one of their ends"
    assert not meetings(edges, colour_of)


def possible(edges, colours, barred):
    """By brute force: is there a colouring at all?"""
    def proper(colour_of):
        allowed = all(c not in barred.get(v, ()) for edge, c in zip(edges, colour_of, strict=True) for v in edge)
        return allowed and not meetings(edges, colour_of)

    return any(proper(colour_of) for colour_of in product(range(colours), repeat=len(edges)))


def test_with_one_colour_barred_at_any_vertices_it_finds_a_colouring_whenever_there_is_one():
    """Against brute force, on small graphs of which some can be coloured and some can't."""
    answers = Counter()
    for seed in range(80):
        rng = random.Random(seed)
        edges = [(("source", rng.randrange(3)), ("target", rng.randrange(3))) for _ in range(6)]
        barred = {vertex: (1,) for vertex in degrees(edges) if rng.random() < 0.4}
        found, exists = None not in colour_edges(edges, 3, barred), possible(edges, 3, barred)
        answers[exists] += 1
        assert found == exists, f"found {found}, exists {exists}; edges {edges}, colour 1 barred at {list(barred)}"
    assert min(answers[True], answers[False]) >= 10, f"one-sided: {dict(answers)}"


@given(multigraphs)
def test_the_same_edges_get_the_same_colours(edges):
    colours = max(degrees(edges).values(), default=1)
    assert colour_edges(edges, colours) == colour_edges(list(edges), colours)


@given(multigraphs, st.randoms(use_true_random=False))
def test_a_matching_covers_every_vertex_that_must_be_covered_if_each_side_can(edges, rng):
    """In a d-regular multigraph all can be; extra edges and more slack elsewhere must not cost one."""
    regular = [(("source", i), ("target", j)) for _ in range(2) for i, j in enumerate(rng.sample(range(SIDE), SIDE))]
    leaves = [(source, ("target", SIDE + index)) for index, (source, _) in enumerate(edges)]
    slack = {vertex: 0 if vertex[1] < SIDE else 1 for edge in regular + leaves for vertex in edge}
    both = [*leaves, *regular]
    matching = covering_matching(both, slack)
    covered = Counter(vertex for edge in matching for vertex in both[edge])
    assert set(covered.values()) == {1}, f"covered more than once: {[v for v, times in covered.items() if times > 1]}"
    bare = [vertex for vertex, room in slack.items() if room == 0 and vertex not in covered]
    assert not bare, f"{bare} could be covered"
