"""The instantaneous depth of one queue, cheap enough to be read thousands of times a second.

RTM_GETQDISC for a single qdisc answers the asker alone when NLM_F_ECHO is set: one message out, one in, no dump.
Source: linux/net/sched/sch_api.c (tc_get_qdisc, qdisc_notify).
"""

from __future__ import annotations

import struct

from pyroute2.netlink.rtnl import RTM_GETQDISC, TC_H_ROOT

from emu.errors import FabricError
from emu.fabric.attributes import attributes, u32
from emu.fabric.netlink import NLM_F_REQUEST, NLMSG_ERROR, Netlink
from emu.fabric.queue import HEADER_BYTES, TCA_STATS2, TCA_STATS_QUEUE, TCMSG_BYTES

NLM_F_ECHO = 8


class DepthProbe:
    """Reads one qdisc of interface `ifindex` in the namespace of `netlink`, a socket nobody else uses.

    `parent` is where the qdisc hangs. The root of a link with delay is its netem: what is under way counts there too.
    """

    def __init__(self, netlink: Netlink, ifindex: int, parent: int = TC_H_ROOT) -> None:
        self._netlink = netlink
        tcmsg = struct.pack("BxxxiIII", 0, ifindex, 0, parent, 0)
        header = struct.pack("IHHII", HEADER_BYTES + TCMSG_BYTES, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_ECHO, 1, 0)
        self._request = header + tcmsg

    def read(self) -> int:
        """Bytes in the queue now."""
        answer = self._netlink.ask(self._request)
        if struct.unpack_from("H", answer, 4)[0] == NLMSG_ERROR:
            raise FabricError(f"{self._netlink.netns}: the queue's depth could not be read")
        stats = attributes(answer, HEADER_BYTES + TCMSG_BYTES)[TCA_STATS2]
        queue = attributes(stats)[TCA_STATS_QUEUE]
        return u32(queue, 4)  # struct gnet_stats_queue: qlen, backlog
