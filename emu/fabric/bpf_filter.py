"""Attaching a loaded BPF program to an interface: a clsact qdisc and one direct-action filter, by netlink.

Source: tc-bpf(8), linux/net/sched/cls_bpf.c.
"""

from __future__ import annotations

import functools
import socket

from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_DELTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER
from pyroute2.netlink.rtnl.tcmsg import sched_bpf, tcmsg
from pyroute2.protocols import ETH_P_ALL

from emu.fabric.netlink import CHANGE, CREATE, Batch
from emu.fabric.template import Template, mark_number

TC_H_CLSACT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
PRIORITY = 1


def add_clsact(batch: Batch, ifindex: int, what: str) -> None:
    """The hook that filters hang on; it queues nothing."""
    batch.add_encoded(_clsact_template().fill(ifindex=ifindex), f"clsact on {what}")


def remove_clsact(batch: Batch, ifindex: int, what: str) -> None:
    """With every filter on it."""
    message = tcmsg()
    message["index"], message["parent"], message["handle"] = ifindex, TC_H_CLSACT, CLSACT_HANDLE
    batch.add(message, RTM_DELQDISC, CHANGE, f"clsact off {what}")


def attach(batch: Batch, ifindex: int, direction: int, program_fd: int, name: str, what: str) -> None:
    """Run the program on every packet that enters (INGRESS) or is about to be queued on (EGRESS) the interface."""
    batch.add_encoded(_filter_template(direction, name).fill(ifindex=ifindex, fd=program_fd), f"{name} on {what}")


def detach(batch: Batch, ifindex: int, direction: int, what: str) -> None:
    """Every program in that direction; the hook stays."""
    message = tcmsg()
    message["index"], message["parent"] = ifindex, direction
    batch.add(message, RTM_DELTFILTER, CHANGE, f"programs off {what}")


@functools.cache
def _clsact_template() -> Template:
    message = tcmsg()
    message["index"], message["parent"], message["handle"] = mark_number(0), TC_H_CLSACT, CLSACT_HANDLE
    message["attrs"] = [("TCA_KIND", "clsact")]
    return Template(message, RTM_NEWQDISC, CREATE, {"ifindex": mark_number(0)})


@functools.cache
def _filter_template(direction: int, name: str) -> Template:
    message = tcmsg()
    message["index"], message["parent"] = mark_number(0), direction
    message["info"] = PRIORITY << 16 | socket.htons(ETH_P_ALL)
    options = sched_bpf.get_parameters({"fd": mark_number(1), "name": name, "direct_action": True})
    message["attrs"] = [("TCA_KIND", "bpf"), ("TCA_OPTIONS", options)]
    return Template(message, RTM_NEWTFILTER, CREATE, {"ifindex": mark_number(0), "fd": mark_number(1)})
