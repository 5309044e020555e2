"""Token bucket filter for pyroute2, whole: rates of 34.4 Gb/s and more (TCA_TBF_RATE64) and an exact burst.

    ipr.tc("add", "tbf", index=2, handle="1:", rate=50_000_000_000, burst=4174, limit=1_000_000)

rate: bytes/s, burst and limit: bytes, all integers. pyroute2 0.9.7's own plugin packs the rate into 32 bits and lets
the type decide the unit. Source: linux/net/sched/sch_tbf.c, uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT

parent = TC_H_ROOT
_U32_MAX = (1 << 32) - 1
LINKLAYER_ETHERNET = 1
NS_PER_TICK = 64


def fix_request(request: dict[str, Any]) -> None:
    """Leave only what tcmsg itself has a field for."""
    for key in ("rate", "burst", "limit"):
        request.pop(key, None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for rate (bytes/s), burst and limit (bytes); none of them on a delete."""
    if "rate" not in kwarg:
        return {"attrs": []}
    rate, burst = kwarg["rate"], kwarg["burst"]
    parms = {
        "rate_linklayer": LINKLAYER_ETHERNET,
        "rate": min(rate, _U32_MAX),
        "limit": kwarg["limit"],
        "buffer": min(-(-burst * 1_000_000_000 // rate // NS_PER_TICK), _U32_MAX),
    }
    attrs: list[tuple[str, Any]] = [("TCA_TBF_PARMS", parms), ("TCA_TBF_BURST", burst)]
    if rate > _U32_MAX:
        attrs.append(("TCA_TBF_RATE64", rate))
    return {"attrs": attrs}


class options(nla):
    """TCA_OPTIONS of a tbf."""

    nla_map = (
        ("TCA_TBF_UNSPEC", "none"),
        ("TCA_TBF_PARMS", "tbf_parms"),
        ("TCA_TBF_RTAB", "hex"),
        ("TCA_TBF_PTAB", "hex"),
        ("TCA_TBF_RATE64", "uint64"),
        ("TCA_TBF_PRATE64", "uint64"),
        ("TCA_TBF_BURST", "uint32"),
        ("TCA_TBF_PBURST", "uint32"),
        ("TCA_TBF_PAD", "hex"),
    )

    class tbf_parms(nla):
        """struct tc_tbf_qopt."""

        fields = (
            ("rate_cell_log", "B"),
            ("rate_linklayer", "B"),
            ("rate_overhead", "H"),
            ("rate_cell_align", "h"),
            ("rate_mpu", "H"),
            ("rate", "I"),
            ("peak_cell_log", "B"),
            ("peak_linklayer", "B"),
            ("peak_overhead", "H"),
            ("peak_cell_align", "h"),
            ("peak_mpu", "H"),
            ("peak", "I"),
            ("limit", "I"),
            ("buffer", "I"),
            ("mtu", "I"),
        )
