"""The one law of names: fit the kernel, can be read aloud, unique where they must be.

Servers are srv0, srv1, …; switches leaf0, spine0, …. A server's NIC of GPU k is rail<k>; a switch port is
down<j> (towards servers) or up<j> (towards spines). Interface names are unique within their namespace, as on a real
machine; a port is written srv3:rail0 where the node matters.

A port of GPU k to its scale-up domain is nv<k>, nv<k>p<plane> where the domain has several planes of switches, and
nv<k>to<peer> where a cable goes straight to another GPU of it. Domain d has the switch nvsw<d>, or in two tiers
nvleaf<i> and nvspine<i>; with p<plane> as above.

Where switches come in pods or groups the name says in which: p3edge1, p3agg0 and core7 of a fat tree, g2r1 of a dragonfly
(group, router), g2l1 and g2s0 of a dragonfly+ (leaf, spine). A torus's node has its coordinates, t0_3_1, and the ports plus<d>
and minus<d> to the next and the previous node in dimension d; a dragonfly's have local<j> in the group and global<j> out of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from emu.errors import TopologyError

IFNAME_MAX = 15  # IFNAMSIZ is 16 with the NUL, linux/if.h


def checked_ifname(name: str) -> str:
    """`name` itself, or TopologyError if Linux would not take it as an interface name."""
    if not 0 < len(name) <= IFNAME_MAX:
        raise TopologyError(
            f"interface name {name!r} has {len(name)} characters; Linux allows 1 to {IFNAME_MAX}"
        )
    if any(c.isspace() or c in "/:" for c in name) or name in (".", ".."):
        raise TopologyError(f"interface name {name!r} has a character that Linux refuses (space, '/' or ':')")
    return name


def ifname(role: str, index: int) -> str:
    """rail3, down12, up0 …"""
    return checked_ifname(f"{role}{index}")


def switch_name(**place: int) -> str:
    """p3edge1, core7, g2r1: what it is in and what it is, each with its number."""
    return "".join(f"{what}{number}" for what, number in place.items())


def torus_name(coordinates: Sequence[int]) -> str:
    """t0_3_1: the node at (0, 3, 1)."""
    return "t" + "_".join(map(str, coordinates))


def scale_up_ifname(gpu: int, *, plane: str = "", peer: int | None = None) -> str:
    """nv3, nv3p1, nv3to5: the port of GPU 3 of a server to a switch, to that of a plane, or to GPU 5 of its domain."""
    return checked_ifname(f"nv{gpu}{plane}" if peer is None else f"nv{gpu}to{peer}")
