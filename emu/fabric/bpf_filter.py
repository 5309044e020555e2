"""Attaching a loaded BPF program to an interface: a clsact qdisc and one direct-action filter, by netlink.

Source: tc-bpf(8), linux/net/sched/cls_bpf.c.
"""

from __future__ import annotations

import socket

from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_NEWTFILTER
from pyroute2.netlink.rtnl.tcmsg import sched_bpf, tcmsg
from pyroute2.protocols import ETH_P_ALL

from emu.fabric.netlink import CREATE, Batch

TC_H_CLSACT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
PRIORITY = 1


def add_clsact(batch: Batch, ifindex: int, what: str) -> None:
    """The hook that filters hang on; it queues nothing."""
    message = tcmsg()
    message["index"], message["parent"], message["handle"] = ifindex, TC_H_CLSACT, CLSACT_HANDLE
    message["attrs"] = [("TCA_KIND", "clsact")]
    batch.add(message, RTM_NEWQDISC, CREATE, f"clsact on {what}")


def attach(batch: Batch, ifindex: int, direction: int, program_fd: int, name: str, what: str) -> None:
    """Run the program on every packet that enters (INGRESS) or is about to be queued on (EGRESS) the interface."""
    message = tcmsg()
    message["index"], message["parent"] = ifindex, direction
    message["info"] = PRIORITY << 16 | socket.htons(ETH_P_ALL)
    options = sched_bpf.get_parameters({"fd": program_fd, "name": name, "direct_action": True})
    message["attrs"] = [("TCA_KIND", "bpf"), ("TCA_OPTIONS", options)]
    batch.add(message, RTM_NEWTFILTER, CREATE, f"{name} on {what}")
