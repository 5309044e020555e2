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

from emu.topology.dragonfly import Dragonfly, DragonflyPlus  # noqa: E402
from emu.topology.fat_tree import FatTree  # noqa: E402
from emu.topology.model import Topology  # noqa: E402
from emu.topology.naming import checked_ifname  # noqa: E402
from emu.topology.queue_profile import QueueProfile  # noqa: E402
from emu.topology.spine_leaf import SpineLeaf  # noqa: E402
from emu.topology.torus import Torus, parse_dims  # noqa: E402
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


COMMON = {"rate_bps": gbps(400), "queue": QueueProfile(buffer_bytes=mib(16))}  # which stock Mininet does not see


def _spine_leaf(wiring: str, servers: int, gpus_per_server: int, leaf_down: int, leaf_up: int) -> ClusterTopo:
    shape = SpineLeaf(
        servers=servers, gpus_per_server=gpus_per_server, wiring=wiring, leaf_down=leaf_down, leaf_up=leaf_up,
        **COMMON,
    )
    return ClusterTopo(shape.topology())


def rail(servers: int = 4, gpus_per_server: int = 2, leaf_down: int = 4, leaf_up: int = 2) -> ClusterTopo:
    """Rail-optimized: NIC k of every server to leaf k."""
    return _spine_leaf("rail", servers, gpus_per_server, leaf_down, leaf_up)


def single(servers: int = 4, gpus_per_server: int = 2, leaf_down: int = 4, leaf_up: int = 2) -> ClusterTopo:
    """Single-rail: all NICs of a server to one leaf."""
    return _spine_leaf("single", servers, gpus_per_server, leaf_down, leaf_up)


def fat_tree(radix: int = 4, pods: int | None = None, edge_up: int | None = None, gpus_per_server: int = 1) -> ClusterTopo:
    """Three tiers of switches with `radix` ports; radix pods unless told otherwise."""
    shape = FatTree(radix=radix, pods=pods, edge_up=edge_up, gpus_per_server=gpus_per_server, **COMMON)
    return ClusterTopo(shape.topology())


def torus(dims: str | int = "3x3", node_gpus: int = 1, gpus_per_server: int = 1) -> ClusterTopo:
    """A node for every point of the grid, as many dimensions as `dims` has numbers; mn takes a single one for an int."""
    shape = Torus(dims=parse_dims(str(dims)), node_gpus=node_gpus, gpus_per_server=gpus_per_server, **COMMON)
    return ClusterTopo(shape.topology())


def dragonfly(
    groups: int = 3, routers: int = 2, router_gpus: int = 1, global_ports: int = 1, gpus_per_server: int = 1
) -> ClusterTopo:
    """Groups of routers, joined all to all."""
    shape = Dragonfly(groups=groups, routers=routers, router_gpus=router_gpus, global_ports=global_ports,
                      gpus_per_server=gpus_per_server, **COMMON)
    return ClusterTopo(shape.topology())


def dragonfly_plus(
    groups: int = 3, leaves: int = 2, leaf_gpus: int = 1, spines: int = 2, global_ports: int = 1, gpus_per_server: int = 1
) -> ClusterTopo:
    """Groups of leaves and spines, the spines joined between groups."""
    shape = DragonflyPlus(groups=groups, leaves=leaves, leaf_gpus=leaf_gpus, spines=spines, global_ports=global_ports,
                          gpus_per_server=gpus_per_server, **COMMON)
    return ClusterTopo(shape.topology())


topos = {
    "rail": rail, "single": single, "fat_tree": fat_tree, "torus": torus,
    "dragonfly": dragonfly, "dragonfly_plus": dragonfly_plus,
}
