"""Packet spraying: every packet of a flow chooses anew, so that no flow can overload a link; the receiver must take any order.

spray         the uplink with the least queued, in whole frames; of those alike the one with the fewest bytes to that leaf so far:
              least queue alone falls into step with senders that send in step, and loads links down from the spines unevenly
spray_random  any, by the leaf's seeded generator
spray_rr      one after the other

Sources: Dixit et al., On the Impact of Packet Spraying in Data Center Networks, INFOCOM 2013 (random); Ghorbani et al., DRILL,
SIGCOMM 2017 (least queue); Cao et al., Per-packet Load-balanced, Low-Latency Routing for Clos-based Data Center Networks,
CoNEXT 2013 (per destination); NVIDIA Spectrum-X adaptive routing (domain facts 2.1). From memory but the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.switch.leaves import Leaf
from emu.switch.mode import Mode, least_busy_model
from emu.switch.oracle import Model, Random, RoundRobin
from emu.switch.tables import Tables


@dataclass(frozen=True)
class Spray(Mode):
    """Least queued bytes, per packet."""

    program = "pick_spray"

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        return least_busy_model(tables, leaf)


@dataclass(frozen=True)
class SprayRandom(Mode):
    """Uniform, per packet. The run's seed decides each leaf's draws."""

    program = "pick_spray_random"

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        return Random(leaf.random_seed)


@dataclass(frozen=True)
class SprayRoundRobin(Mode):
    """Each leaf's packets in turn; blind to their length, so that a pattern of long and short ones may load one link more."""

    program = "pick_spray_rr"

    def model(self, tables: Tables, leaf: Leaf) -> Model:
        return RoundRobin()
