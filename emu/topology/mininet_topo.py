"""The same clusters as mininet.topo.Topo subclasses, so that stock `mn --custom` loads them:

    sudo mn --custom emu/topology/mininet_topo.py --topo rail,servers=4,gpus_per_server=2 --controller none

Stock Mininet brings its own hosts, switches and links; addresses, queues and rates are Railbed's alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mininet.topo import Topo

if __name__ == "builtins":  # mn executes this text by itself: it is no module then, and our checkout not on the path
    sys.path.insert(0, str(Path(sys._getframe().f_code.co_filename).resolve().parents[2]))

from emu.topology.model import Topology  # noqa: E402
from emu.topology.naming import checked_ifname  # noqa: E402
from emu.topology.queue_profile import QueueProfile  # noqa: E402
from emu.topology.spine_leaf import SpineLeaf  # noqa: E402
from emu.units import gbps, mib  # noqa: E402


class ClusterTopo(Topo):
    """A Topology's nodes and links in Mininet's terms; servers are hosts."""

    def build(self, cluster: Topology, **_opts: Any) -> None:
        for server in cluster.servers:
            self.addHost(server.name)
        for number, switch in enumerate(cluster.switches, start=1):
            self.addSwitch(switch.name, dpid=f"{number:016x}")
        for link in cluster.links:
            self.addLink(link.a.node, link.b.node, intfName1=checked_ifname(f"{link.a.node}-{link.a.ifname}"),
                         intfName2=checked_ifname(f"{link.b.node}-{link.b.ifname}"))


def _spine_leaf(wiring: str, servers: int, gpus_per_server: int, leaf_down: int, leaf_up: int) -> ClusterTopo:
    shape = SpineLeaf(
        servers=servers, gpus_per_server=gpus_per_server, wiring=wiring, leaf_down=leaf_down, leaf_up=leaf_up,
        rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(16)),
    )
    return ClusterTopo(shape.topology())


def rail(servers: int = 4, gpus_per_server: int = 2, leaf_down: int = 4, leaf_up: int = 2) -> ClusterTopo:
    """Rail-optimized: NIC k of every server to leaf k."""
    return _spine_leaf("rail", servers, gpus_per_server, leaf_down, leaf_up)


def single(servers: int = 4, gpus_per_server: int = 2, leaf_down: int = 4, leaf_up: int = 2) -> ClusterTopo:
    """Single-rail: all NICs of a server to one leaf."""
    return _spine_leaf("single", servers, gpus_per_server, leaf_down, leaf_up)


topos = {"rail": rail, "single": single}
