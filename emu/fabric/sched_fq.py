"""Fair queue for pyroute2, which has no plugin for it: here it only keeps packets until their departure time (EDT).

    ipr.tc("add", "fq", index=2, parent="1:1", handle="4:", limit=1 << 20)

limit: packets, of the queue and of each flow. The timer gets no slack: by default a packet may leave 10 µs late, whenever some
other timer fires, which is a packet's time here and differs from run to run.
Source: linux/net/sched/sch_fq.c, uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT

parent = TC_H_ROOT
TIMER_SLACK_NS = 0


def fix_request(request: dict[str, Any]) -> None:
    """Leave only what tcmsg itself has a field for."""
    request.pop("limit", None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for limit (packets); none of them on a delete."""
    if "limit" not in kwarg:
        return {"attrs": []}
    limits = [("TCA_FQ_PLIMIT", kwarg["limit"]), ("TCA_FQ_FLOW_PLIMIT", kwarg["limit"])]
    return {"attrs": [*limits, ("TCA_FQ_TIMER_SLACK", TIMER_SLACK_NS)]}


class options(nla):
    """TCA_OPTIONS of an fq, as far as it is used."""

    nla_map = (
        (0, "TCA_FQ_UNSPEC", "none"), (1, "TCA_FQ_PLIMIT", "uint32"), (2, "TCA_FQ_FLOW_PLIMIT", "uint32"),
        (13, "TCA_FQ_TIMER_SLACK", "uint32"),
    )
