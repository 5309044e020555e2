"""Building a rail fabric of 256 GPUs: Railbed against stock Mininet's nodes and links, in one run.

Both make the same nodes (32 servers, 8 leaves, 32 spines) and the same 512 links. Railbed's side has every queue, address,
neighbour, ECMP route and offload set, marked and read back; Mininet's has its own shaped links (TCLink at 1 Gb/s, the
most it takes) and addresses, no routes. The ratio is of wall times on the same machine, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mininet.link import TCLink
from mininet.net import Mininet
from mininet.node import Node

from emu.fabric.fabric import Fabric
from emu.scale import Scale
from emu.topology.model import Topology
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

SERVERS, GPUS_PER_SERVER, LEAF_UP = 32, 8, 32
RUNS = 3                 # of Railbed; the median counts. Stock Mininet takes a minute and runs once
DILATION = 200
MININET_MBPS = 1000


def run(progress: object) -> dict:
    """Metrics build_ratio_vs_mininet, build_s, mininet_build_s; a row per tool."""
    with progress.phase("Railbed, three builds"):
        builds = sorted(timed(railbed) for _ in range(RUNS))
    with progress.phase("stock Mininet, one build (a minute or more)"):
        stock_build_s, stock_stop_s = timed(stock_mininet)
    build_s, stop_s = builds[len(builds) // 2]
    gpus = SERVERS * GPUS_PER_SERVER
    return {
        "metrics": {
            "build_ratio_vs_mininet": {"value": stock_build_s / build_s, "unit": "ratio"},
            "build_s": {"value": build_s, "unit": "s"},
            "mininet_build_s": {"value": stock_build_s, "unit": "s"},
        },
        "rows": [
            {"tool": "railbed", "gpus": gpus, "build_s": build_s, "destroy_s": stop_s, "queues_and_routes": "all"},
            {"tool": "mininet", "gpus": gpus, "build_s": stock_build_s, "destroy_s": stock_stop_s,
             "queues_and_routes": "htb only"},
        ],
    }


def cluster() -> Topology:
    ecn = EcnProfile(kmin_bytes=mib(1), kmax_bytes=mib(2), pmax=0.05)
    return SpineLeaf(
        servers=SERVERS, gpus_per_server=GPUS_PER_SERVER, wiring="rail", leaf_down=SERVERS, leaf_up=LEAF_UP,
        rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(16), ecn=ecn),
    ).topology()


def timed(build: Callable[[], tuple[float, float, float]]) -> tuple[float, float]:
    """(seconds to build, seconds to remove)."""
    started, built, removed = build()
    return built - started, removed - built


def railbed() -> tuple[float, float, float]:
    started = time.monotonic()
    with Fabric(make_plan(cluster(), seed=1), Scale(dilation=DILATION, catch_up_ns=200_000)):
        built = time.monotonic()
    return started, built, time.monotonic()


def stock_mininet() -> tuple[float, float, float]:
    """The same nodes and links as stock Mininet makes them; switches are plain nodes, so no Open vSwitch is needed."""
    topology = cluster()
    Mininet.inited = True  # or it would raise limits of the whole machine
    net = Mininet(topo=None, build=False, controller=None, link=TCLink)
    started = time.monotonic()
    try:
        for server in topology.servers:
            net.addHost(server.name)
        for switch in topology.switches:
            net.addHost(switch.name, cls=Node)
        for cable in topology.links:
            net.addLink(
                cable.a.node, cable.b.node, bw=MININET_MBPS,
                intfName1=f"{cable.a.node}-{short(cable.a.ifname)}", intfName2=f"{cable.b.node}-{short(cable.b.ifname)}",
            )
        net.build()
        built = time.monotonic()
    finally:
        net.stop()
    return started, built, time.monotonic()


def short(ifname: str) -> str:
    """Mininet makes both ends in the root namespace first, so names hold node and port within 15 characters."""
    return ifname.replace("rail", "r").replace("down", "d").replace("up", "u")
