"""Random early detection for pyroute2, which has no plugin for it.

    ipr.tc("add", "red", index=2, parent="1:1", handle="2:", limit=1 << 24, qmin=100_000, qmax=400_000,
           max_p=429_496_730, ecn=True)

limit, qmin, qmax: bytes; max_p: RED's probability parameter in units of 2^-32; nodrop: what can't be marked is queued, not
dropped (Linux 5.7). The average follows the queue at once
(Wlog = 0, a table of full damping for idle times), as switches mark; `tc` itself cannot ask for that.
Source: linux/include/net/red.h, linux/net/sched/sch_red.c, uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT

parent = TC_H_ROOT
TC_RED_ECN, TC_RED_NODROP = 1, 8
STAB_BYTES = 256
STAB_FULL_DAMPING = 31  # red.h takes shifts below 32: an average kept over an idle time is forgotten whole


def fix_request(request: dict[str, Any]) -> None:
    """Leave only what tcmsg itself has a field for."""
    for key in ("limit", "qmin", "qmax", "max_p", "ecn", "nodrop"):
        request.pop(key, None)


def get_parameters(kwarg: dict[str, Any]) -> dict[str, Any]:
    """Options for limit, qmin, qmax (bytes), max_p (2^-32), ecn and nodrop; none of them on a delete."""
    if "limit" not in kwarg:
        return {"attrs": []}
    parms = {
        "limit": kwarg["limit"],
        "qth_min": kwarg["qmin"],
        "qth_max": kwarg["qmax"],
        "wlog": 0,
        "plog": 0,
        "scell_log": 0,
        "flags": 0 if "nodrop" in kwarg else TC_RED_ECN if kwarg.get("ecn") else 0,
    }
    flags = [("TCA_RED_FLAGS", _flags(kwarg))] if "nodrop" in kwarg else []
    return {
        "attrs": [
            ("TCA_RED_PARMS", parms),
            ("TCA_RED_STAB", bytes([STAB_FULL_DAMPING] * STAB_BYTES)),
            ("TCA_RED_MAX_P", kwarg["max_p"]),
            *flags,
        ]
    }


def _flags(kwarg: dict[str, Any]) -> bytes:
    """struct nla_bitfield32: value, selector. The old field has no room for nodrop, and the kernel takes only one of them."""
    value = (TC_RED_ECN if kwarg.get("ecn") else 0) | (TC_RED_NODROP if kwarg["nodrop"] else 0)
    return struct.pack("=II", value, TC_RED_ECN | TC_RED_NODROP)


class options(nla):
    """TCA_OPTIONS of a red."""

    nla_map = (
        ("TCA_RED_UNSPEC", "none"),
        ("TCA_RED_PARMS", "red_parms"),
        ("TCA_RED_STAB", "cdata"),
        ("TCA_RED_MAX_P", "uint32"),
        ("TCA_RED_FLAGS", "cdata"),
        ("TCA_RED_EARLY_DROP_BLOCK", "uint32"),
        ("TCA_RED_MARK_BLOCK", "uint32"),
    )

    class red_parms(nla):
        """struct tc_red_qopt."""

        fields = (
            ("limit", "I"),
            ("qth_min", "I"),
            ("qth_max", "I"),
            ("wlog", "B"),
            ("plog", "B"),
            ("scell_log", "B"),
            ("flags", "B"),
        )


class stats(nla):
    """TCA_XSTATS, struct tc_red_xstats, in packets."""

    fields = (("early", "I"), ("pdrop", "I"), ("other", "I"), ("marked", "I"))
