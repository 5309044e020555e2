"""Traffic that load balancers are compared with: pairs of NICs, every flow across the spines.

permutation   every NIC sends to one and receives from one, none to its own leaf: the most that a non-blocking fabric carries
shift         every NIC sends to the one so many further: what is worst for a torus or a dragonfly, and nothing to a fat tree
incast        NICs of other leaves send to one, and one more, the bystander, to the NIC beside it
groups        NICs in groups that exchange all to all, strided over the leaves as experts are over a cluster
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from random import Random

from emu.errors import UsageError
from emu.topology.model import Port, Topology


def nics_by_leaf(topology: Topology) -> dict[str, list[Port]]:
    """Access switch -> the NICs under it, in the order of the servers."""
    return {switch: [link.a for link in links] for switch, links in topology.access_links.items()}


def permutation(topology: Topology, rng: Random) -> list[tuple[Port, Port]]:
    """(source, target) for every NIC, at random but never under one leaf.

    UsageError if a leaf has more than half of all NICs: then some flow has to stay under it.
    """
    under = nics_by_leaf(topology)
    everyone = [(leaf, port) for leaf, ports in under.items() for port in ports]
    most = max(map(len, under.values()))
    if 2 * most > len(everyone):
        raise UsageError(f"a leaf has {most} of {len(everyone)} NICs; a permutation across leaves wants at most half under one")
    rng.shuffle(everyone)
    targets = everyone[:]
    rng.shuffle(targets)
    for place, (leaf, _) in enumerate(everyone):
        if targets[place][0] == leaf:
            _swap_away(place, everyone, targets, rng)
    return [(source, target) for (_, source), (_, target) in zip(everyone, targets, strict=True)]


def _swap_away(place: int, sources: Sequence[tuple[str, Port]], targets: list[tuple[str, Port]], rng: Random) -> None:
    """Exchange this target with one at random so that neither of the two is under its source's leaf."""
    leaf, own = sources[place][0], targets[place][0]
    fits = [other for other in range(len(sources)) if targets[other][0] != leaf and sources[other][0] != own]
    other = rng.choice(fits)
    targets[place], targets[other] = targets[other], targets[place]


def shift(topology: Topology, by: int) -> list[tuple[Port, Port]]:
    """(source, target), in the order of the servers. UsageError for a multiple of all NICs: each would send to itself."""
    everyone = [port for ports in nics_by_leaf(topology).values() for port in ports]
    if by % len(everyone) == 0:
        raise UsageError(f"a shift by {by} of {len(everyone)} NICs sends nothing anywhere; want 1 to {len(everyone) - 1}")
    return [(port, everyone[(place + by) % len(everyone)]) for place, port in enumerate(everyone)]


def incast(topology: Topology, senders: int) -> list[tuple[Port, Port]]:
    """(source, target): the bystander first, then `senders` NICs of all leaves but the first in turn, to the first NIC of all.

    UsageError if there are not as many, or no second NIC under the first leaf.
    """
    first, *others = nics_by_leaf(topology).values()
    sources = [port for row in zip_longest(*others) for port in row if port is not None]
    if len(first) < 2 or senders + 1 > len(sources):
        raise UsageError(f"senders={senders} and a bystander: {len(sources)} NICs under other leaves than the first, "
                         f"{len(first)} under it; want {senders + 1} and 2")
    return [(sources[senders], first[1]), *((source, first[0]) for source in sources[:senders])]


def groups(topology: Topology, size: int) -> list[list[Port]]:
    """NICs in groups of `size`: group g has NICs g, g + n, g + 2n, … of n groups. UsageError if they don't come out even."""
    everyone = [port for ports in nics_by_leaf(topology).values() for port in ports]
    if size < 2 or len(everyone) % size:
        fits = [str(n) for n in range(2, len(everyone) + 1) if len(everyone) % n == 0]
        raise UsageError(f"groups of {size} of {len(everyone)} NICs; want one of {', '.join(fits)}")
    count = len(everyone) // size
    return [everyone[first::count] for first in range(count)]
