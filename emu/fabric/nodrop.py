"""Switch ports that carry cells: their RED queues what it can't mark.

Cells are not IP, so RED has no bits to mark in them, and what it can't mark it would drop as soon as the queue is longer than
Kmin: a cell fabric has no such drops. The buffer's end stays where it was.
Source: linux/net/sched/sch_red.c (TC_RED_NODROP).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroute2.netlink.rtnl import RTM_NEWQDISC
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emu.fabric import sched_red
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import REPLACE, Batch
from emu.fabric.queue import RED_HANDLE, TBF_HANDLE, QueueSetting
from emu.topology.model import Port


def set_nodrop(fabric: Fabric, ports: Iterable[Port], nodrop: bool) -> None:
    """On those of `ports` that have a RED; counters go on."""
    batches: dict[str, Batch] = {}
    for port in ports:
        if fabric.settings[port].red:
            _add(batches.setdefault(port.node, Batch()), fabric.settings[port], nodrop, str(port))
    for node, batch in batches.items():
        fabric.netlink(node).run(batch)


def _add(batch: Batch, queue: QueueSetting, nodrop: bool, what: str) -> None:
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = queue.ifindex, RED_HANDLE, TBF_HANDLE | 1
    options = sched_red.get_parameters(
        {"limit": queue.limit_bytes, "qmin": queue.ecn.kmin_bytes, "qmax": queue.ecn.kmax_bytes, "max_p": queue.red.max_p,
         "ecn": True, "nodrop": nodrop}
    )
    message["attrs"] = [("TCA_KIND", "red"), ("TCA_OPTIONS", options)]
    batch.add(message, RTM_NEWQDISC, REPLACE, f"red nodrop on {what}")
