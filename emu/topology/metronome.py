"""A cable from a server back to itself for each GPU: what crosses it takes as long as it is long, and so tells time to NICs.

A work request can wait for a message but not for a moment. A message over this cable arrives when its bytes have been sent
and not before, so that requests which wait for such messages go out at moments chosen beforehand: traffic of a stated load,
that doesn't wait for its own answers. GPU k of a server has the ports clk<k>a and clk<k>b.
"""

from __future__ import annotations

from dataclasses import replace

from emu.topology.model import RATE_MAX_BPS, Link, Port, Topology
from emu.topology.naming import ifname


def metronome(server: int, gpu: int) -> tuple[Port, Port]:
    """Source and target of the messages that tell the time."""
    return Port(f"srv{server}", ifname("clk", gpu) + "a"), Port(f"srv{server}", ifname("clk", gpu) + "b")


def with_metronomes(topology: Topology, rate_bps: int) -> Topology:
    """The same cluster with a metronome of `rate_bps` for every GPU; what was there keeps its place."""
    cables = -(-rate_bps // RATE_MAX_BPS)
    ends = [metronome(server, gpu) for server, box in enumerate(topology.servers) for gpu in range(box.gpus)]
    return replace(topology, links=(*topology.links, *(Link(a=a, b=b, rate_bps=rate_bps, cables=cables) for a, b in ends)))
