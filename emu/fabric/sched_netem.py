"""netem for pyroute2 with the delay in nanoseconds (TCA_NETEM_LATENCY64); pyroute2's own takes whole microseconds.

    ipr.tc("add", "netem", index=2, handle="3:", delay_ns=50_123, limit=1000)

Only propagation: constant delay, no loss. limit: packets. Source: linux/net/sched/sch_netem.c, uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import sched_netem

parent = TC_H_ROOT
QOPT_BYTES, LIMIT_OFFSET = 24, 4  # struct tc_netem_qopt, before the attributes; the limit in it


def fix_request(request: dict[str, Any]) -> None:
    """Leave only what tcmsg itself has a field for."""
    for key in ("delay_ns", "limit"):
        request.pop(key, None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for delay_ns and limit (packets); none of them on a delete."""
    if "delay_ns" not in kwarg:
        return {"attrs": []}
    empty = dict.fromkeys(("delay", "loss", "gap", "duplicate", "jitter"), 0)
    return empty | {"limit": kwarg["limit"], "attrs": [("TCA_NETEM_LATENCY64", kwarg["delay_ns"])]}


class options(sched_netem.options):
    """TCA_OPTIONS of a netem, with the attributes that pyroute2 0.9.7 doesn't know."""

    nla_map = (
        *sched_netem.options.nla_map,
        ("TCA_NETEM_ECN", "uint32"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "hex"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
    )
