"""Addresses, neighbours, routes, policy rules and forwarding knobs of one namespace.

Neighbours are permanent, so that no ARP ever stands in a measured queue. ECMP hashes the 5-tuple with a seed per switch;
without one all namespaces of a kernel share a secret and every tier picks alike (perfect polarization).
Source: Documentation/networking/ip-sysctl.rst, domain facts 6.1.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from pyroute2.netlink.rtnl import RTM_GETROUTE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from emu.fabric.netlink import CREATE, Batch, Netlink
from emu.topology.plan import NodePlan, PortPlan, Route

NUD_PERMANENT = 0x80
RT_TABLE_UNSPEC, RT_TABLE_MAIN = 0, 254
RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST, FR_ACT_TO_TBL = 4, 0, 1, 1
RULE_PRIORITY = 1000
HASH_L4 = 1
SYSCTL = Path("/proc/sys/net")


def address_and_neighbour(batch: Batch, port: PortPlan) -> None:
    """The port's /31 and the one neighbour at the other end of the cable."""
    address = ifaddrmsg()
    address["family"], address["prefixlen"], address["index"] = socket.AF_INET, 31, port.ifindex
    address["attrs"] = [("IFA_LOCAL", port.address), ("IFA_ADDRESS", port.address)]
    batch.add(address, RTM_NEWADDR, CREATE, f"address {port.address} on {port.port}")
    neighbour = ndmsg()
    neighbour["family"], neighbour["ifindex"], neighbour["state"] = socket.AF_INET, port.ifindex, NUD_PERMANENT
    neighbour["attrs"] = [("NDA_DST", port.peer_address), ("NDA_LLADDR", port.peer_mac)]
    batch.add(neighbour, RTM_NEWNEIGH, CREATE, f"neighbour {port.peer_address} on {port.port}")


def route(batch: Batch, node: NodePlan, wanted: Route) -> None:
    """A static route, multipath when it has more than one interface."""
    network = ipaddress.ip_network(wanted.prefix)
    ports = {port.port.ifname: port for port in node.ports}
    message = rtmsg()
    message["family"], message["dst_len"] = socket.AF_INET, network.prefixlen
    message["table"] = wanted.table if wanted.table <= RT_TABLE_MAIN else RT_TABLE_UNSPEC
    message["proto"], message["scope"], message["type"] = RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST
    message["attrs"] = [("RTA_TABLE", wanted.table)]
    if network.prefixlen:
        message["attrs"].append(("RTA_DST", str(network.network_address)))
    via = [ports[ifname] for ifname in wanted.via]
    if len(via) == 1:
        message["attrs"] += [("RTA_GATEWAY", via[0].peer_address), ("RTA_OIF", via[0].ifindex)]
    else:
        message["attrs"].append(("RTA_MULTIPATH", [_hop(port) for port in via]))
    batch.add(message, RTM_NEWROUTE, CREATE, f"route {wanted.prefix} of {node.name}")


def rail_rules(batch: Batch, rail: PortPlan, table: int) -> None:
    """What is from the NIC's address, or bound to the NIC, looks up the NIC's own table first."""
    for selector in (("FRA_SRC", rail.address), ("FRA_OIFNAME", rail.port.ifname)):
        message = fibmsg()
        message["family"], message["action"], message["table"] = socket.AF_INET, FR_ACT_TO_TBL, table
        message["src_len"] = 32 if selector[0] == "FRA_SRC" else 0
        message["attrs"] = [selector, ("FRA_TABLE", table), ("FRA_PRIORITY", RULE_PRIORITY)]
        batch.add(message, RTM_NEWRULE, CREATE, f"rule {selector[0]} {selector[1]}")


def knobs(node: NodePlan) -> dict[str, str]:
    """Path below /proc/sys/net -> value, for a namespace that has no links yet."""
    wanted = {
        "ipv6/conf/all/disable_ipv6": "1",  # no router solicitation or DAD in a measured queue
        "ipv6/conf/default/disable_ipv6": "1",
        "ipv4/conf/all/rp_filter": "0",
        "ipv4/conf/default/rp_filter": "0",
    }
    if node.forwards:
        wanted |= {
            "ipv4/ip_forward": "1",
            "ipv4/conf/all/send_redirects": "0",
            "ipv4/conf/default/send_redirects": "0",
            "ipv4/fib_multipath_hash_policy": str(HASH_L4),
            "ipv4/fib_multipath_hash_seed": str(node.hash_seed),
        }
    return wanted


def set_knobs(wanted: dict[str, str], optional: frozenset[str] = frozenset()) -> list[str]:
    """Write and read back in the current namespace; one line per knob kept otherwise. `optional` ones may be absent."""
    lines = []
    for knob, value in wanted.items():
        path = SYSCTL / knob
        if not path.exists():
            if knob not in optional and not knob.startswith("ipv6/"):  # a kernel without IPv6 has nothing to disable
                lines.append(f"{knob}: this kernel has no such knob")
            continue
        path.write_text(value)
        kept = path.read_text().strip()
        if kept != value:
            lines.append(f"{knob}: asked {value}, kernel keeps {kept}")
    return lines


def mismatches(node: NodePlan, netlink: Netlink) -> list[str]:
    """One line per planned route whose next hops the kernel does not have."""
    names = {port.ifindex: port.port.ifname for port in node.ports}
    got = {_key(message): _via(message, names) for message in netlink.dump(_ipv4_routes(), RTM_GETROUTE)}
    return [
        f"{node.name}: route {want.prefix} table {want.table} asked via {len(want.via)} next hops, "
        f"kernel has {len(got.get((want.prefix, want.table), ()))}"
        for want in node.routes
        if got.get((want.prefix, want.table)) != want.via
    ]


def _ipv4_routes() -> rtmsg:
    message = rtmsg()
    message["family"] = socket.AF_INET
    return message


def _key(message: rtmsg) -> tuple[str, int]:
    return f"{message.get_attr('RTA_DST') or '0.0.0.0'}/{message['dst_len']}", message.get_attr("RTA_TABLE")


def _via(message: rtmsg, names: dict[int, str]) -> tuple[str, ...]:
    hops = message.get_attr("RTA_MULTIPATH")
    indexes = [hop["oif"] for hop in hops] if hops else [message.get_attr("RTA_OIF")]
    return tuple(names.get(index, "?") for index in indexes)


def _hop(port: PortPlan) -> dict:
    return {"hops": 0, "flags": 0, "oif": port.ifindex, "attrs": [("RTA_GATEWAY", port.peer_address)]}
