"""The Spine-Leaf cluster that the common parameters describe."""

from __future__ import annotations

from emu.errors import UsageError
from emu.scenario.choice import Values
from emu.scenario.ecn_profile import queue_profile
from emu.topology.model import Topology
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps


def spine_leaf(p: Values, gpus: int | None = None) -> Topology:
    """Of `gpus` GPUs (default: the parameter's) in whole servers. UsageError if they don't fill them."""
    gpus = p.gpus if gpus is None else gpus
    servers, rest = divmod(gpus, p.gpus_per_server)
    if rest:
        raise UsageError(f"gpus={gpus} do not fill servers of gpus_per_server={p.gpus_per_server}; want a multiple of it")
    return SpineLeaf(
        servers=servers, gpus_per_server=p.gpus_per_server, wiring=p.wiring, leaf_down=p.leaf_down, leaf_up=p.leaf_up,
        rate_bps=gbps(p.rate_gbps), delay_ns=p.delay_ns, path_mtu_bytes=p.mtu, queue=queue_profile(p),
    ).topology()
