"""How groups of switches are joined to each other: what a dragonfly and a dragonfly+ have in common.

A group counts its global ports through its switches, and its neighbours by how many groups further they are, round the ring
of groups. Every pair gets as many cables as the ports allow; those left over stay free, for groups to come.
Source: Camarero, Vallejo, Beivide, Topological Characterization of Hamming and Dragonfly Networks and Its Implications on
Routing, ACM TACO 2014 (the "relative" arrangement; from memory).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from emu.errors import TopologyError

Place = tuple[int, int]  # group, its global port


def cables_a_pair(groups: int, global_ports: int) -> int:
    """Between any two groups. TopologyError unless every group has a port for each other."""
    if not 2 <= groups <= global_ports + 1:
        raise TopologyError(f"groups={groups}; want 2 to {global_ports + 1}, as a group has {global_ports} global ports")
    return global_ports // (groups - 1)


def global_cables(groups: int, global_ports: int) -> Iterator[tuple[Place, Place]]:
    """Both ends of every cable between two groups."""
    for one, other in itertools.combinations(range(groups), 2):
        for parallel in range(cables_a_pair(groups, global_ports)):
            first, ahead = parallel * (groups - 1), other - one
            yield (one, first + ahead - 1), (other, first + groups - ahead - 1)
