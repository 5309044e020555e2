"""A queue that lets one small frame through per period: what makes a circulating frame a clock."""

from __future__ import annotations

import functools

from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emu.fabric import sched_tbf
from emu.fabric.netlink import CHANGE, CREATE, Batch
from emu.fabric.template import Template, mark_number

HANDLE = 0x10000
LIMIT_BYTES = 1 << 16


def install(batch: Batch, ifindex: int, frame_bytes: int, period_ns: int, what: str) -> None:
    """On an interface that has no queue yet."""
    batch.add_encoded(_template(frame_bytes, period_ns).fill(ifindex=ifindex), f"pacer on {what}")


def remove(batch: Batch, ifindex: int, what: str) -> None:
    message = tcmsg()
    message["index"], message["parent"] = ifindex, TC_H_ROOT
    batch.add(message, RTM_DELQDISC, CHANGE, f"pacer off {what}")


@functools.cache
def _template(frame_bytes: int, period_ns: int) -> Template:
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = mark_number(0), HANDLE, TC_H_ROOT
    rate = max(1, frame_bytes * 1_000_000_000 // period_ns)
    options = sched_tbf.get_parameters({"rate": rate, "burst": frame_bytes, "limit": LIMIT_BYTES})
    message["attrs"] = [("TCA_KIND", "tbf"), ("TCA_OPTIONS", options)]
    return Template(message, RTM_NEWQDISC, CREATE, {"ifindex": mark_number(0)})
