"""Fair queue for pyroute2, which has no plugin for it: here it only keeps packets until their departure time (EDT).

    ipr.tc("add", "fq", index=2, parent="1:1", handle="4:", limit=1 << 20)

limit: packets, of the queue and of each flow. Source: linux/net/sched/sch_fq.c, uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT

parent = TC_H_ROOT


def fix_request(request: dict[str, Any]) -> None:
    """Leave only what tcmsg itself has a field for."""
    request.pop("limit", None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for limit (packets); none of them on a delete."""
    if "limit" not in kwarg:
        return {"attrs": []}
    return {"attrs": [("TCA_FQ_PLIMIT", kwarg["limit"]), ("TCA_FQ_FLOW_PLIMIT", kwarg["limit"])]}


class options(nla):
    """TCA_OPTIONS of an fq, as far as it is used."""

    nla_map = (("TCA_FQ_UNSPEC", "none"), ("TCA_FQ_PLIMIT", "uint32"), ("TCA_FQ_FLOW_PLIMIT", "uint32"))
