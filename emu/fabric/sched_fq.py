"""Fair queue for pyroute2, which has no plugin for it: here it only keeps packets until their departure time (EDT).

    ipr.tc("add", "fq", index=2, parent="1:1", handle="4:", limit=1 << 20)

limit: packets, of the queue and of each flow. flows: packets are told apart by as many values of their hash, which a BPF
program may have set; horizon_us: a packet whose time is further away is dropped (default 10 s). The timer gets no slack: by
default a packet may leave 10 µs late, whenever some other timer fires, which is a packet's time here and differs from run to run.
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
    for key in ("limit", "flows", "horizon_us"):
        request.pop(key, None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for limit (packets), flows (a power of two) and horizon_us; none of them on a delete."""
    if "limit" not in kwarg:
        return {"attrs": []}
    limits = [("TCA_FQ_PLIMIT", kwarg["limit"]), ("TCA_FQ_FLOW_PLIMIT", kwarg["limit"])]
    flows = [("TCA_FQ_ORPHAN_MASK", kwarg["flows"] - 1)] if "flows" in kwarg else []
    horizon = [("TCA_FQ_HORIZON", kwarg["horizon_us"])] if "horizon_us" in kwarg else []
    return {"attrs": [*limits, *flows, ("TCA_FQ_TIMER_SLACK", TIMER_SLACK_NS), *horizon]}


class options(nla):
    """TCA_OPTIONS of an fq, as far as it is used."""

    nla_map = (
        (0, "TCA_FQ_UNSPEC", "none"), (1, "TCA_FQ_PLIMIT", "uint32"), (2, "TCA_FQ_FLOW_PLIMIT", "uint32"),
        (10, "TCA_FQ_ORPHAN_MASK", "uint32"), (13, "TCA_FQ_TIMER_SLACK", "uint32"), (14, "TCA_FQ_HORIZON", "uint32"),
    )
