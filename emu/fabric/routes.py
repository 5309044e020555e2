"""Addresses, neighbours, routes, policy rules and forwarding knobs of one namespace.

Neighbours are permanent, so that no ARP ever stands in a measured queue. ECMP hashes the 5-tuple with a seed per switch;
without one all namespaces of a kernel share a secret and every tier picks alike (perfect polarization).
Source: Documentation/networking/ip-sysctl.rst, domain facts 6.1.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

from pyroute2.netlink.rtnl import RTM_DELROUTE, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from emu.fabric.netlink import CHANGE, CREATE, Batch, Netlink
from emu.fabric.template import Template, mark_address, mark_mac, mark_name, mark_number
from emu.topology.plan import NodePlan, PortPlan, Route

NUD_PERMANENT = 0x80
RT_TABLE_UNSPEC = 0
PROTO_OFFSET = 16 + 5  # of rtm_protocol, after struct nlmsghdr
RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST, FR_ACT_TO_TBL = 4, 0, 1, 1
RULE_PRIORITY = 1000
HASH_L4 = 1
SYSCTL = Path("/proc/sys/net")


def address_and_neighbour(batch: Batch, port: PortPlan) -> None:
    """The port's /31 and the one neighbour at the other end of the cable."""
    address = _address_template().fill(ifindex=port.ifindex, local=port.address, address=port.address)
    batch.add_encoded(address, f"address {port.address} on {port.port}")
    neighbour(batch, port)


def neighbour(batch: Batch, port: PortPlan) -> None:
    """The one at the other end of the cable; it is gone after the port was down."""
    message = _neighbour_template().fill(ifindex=port.ifindex, address=port.peer_address, mac=port.peer_mac)
    batch.add_encoded(message, f"neighbour {port.peer_address} on {port.port}")


def route(batch: Batch, node: NodePlan, wanted: Route, flags: int = CREATE) -> None:
    """A static route, multipath when it has more than one interface. flags=REPLACE: in place of what is there."""
    network = ipaddress.ip_network(wanted.prefix)
    ports = {port.port.ifname: port for port in node.ports}
    via = [ports[ifname] for ifname in wanted.via]
    what = f"route {wanted.prefix} of {node.name}"
    if len(via) == 1:
        slots = {"table": wanted.table, "gateway": via[0].peer_address, "oif": via[0].ifindex}
        template = _route_template(network.prefixlen, flags)
        batch.add_encoded(template.fill(destination=str(network.network_address), **slots), what)
    else:
        message = _route_message(network.prefixlen, str(network.network_address), wanted.table)
        message["attrs"].append(("RTA_MULTIPATH", [_hop(port) for port in via]))
        batch.add(message, RTM_NEWROUTE, flags, what)


def remove_route(batch: Batch, node: NodePlan, unwanted: Route) -> None:
    """Whatever leads to the prefix in that table."""
    network = ipaddress.ip_network(unwanted.prefix)
    message = _route_message(network.prefixlen, str(network.network_address), unwanted.table)
    batch.add(message, RTM_DELROUTE, CHANGE, f"route {unwanted.prefix} off {node.name}")


def rail_rules(batch: Batch, rail: PortPlan, table: int) -> None:
    """What is from the NIC's address, or bound to the NIC, looks up the NIC's own table first."""
    for kind, selector in (("FRA_SRC", rail.address), ("FRA_OIFNAME", rail.port.ifname)):
        rule = _rule_template(kind)
        batch.add_encoded(rule.fill(selector=selector, table=table), f"rule for {selector}")


def knobs(node: NodePlan) -> dict[str, str]:
    """Path below /proc/sys/net -> value, for a namespace that has no links yet."""
    wanted = {
        "ipv6/conf/all/disable_ipv6": "1",  # no router solicitation or DAD in a measured queue
        "ipv6/conf/default/disable_ipv6": "1",
        "ipv4/conf/all/rp_filter": "0",
        "ipv4/conf/default/rp_filter": "0",
    }
    if not node.forwards:
        wanted["core/rps_default_mask"] = "1"  # one CPU serves all NICs, so that their engine needs no locks
    if node.forwards:
        wanted |= {
            "ipv4/ip_forward": "1",
            "ipv4/ip_early_demux": "0",  # a switch forwards all; so does the next: nothing comes from itself
            "ipv4/conf/all/accept_local": "1",
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
    got = dict(_static_routes(netlink, names))
    return [
        f"{node.name}: route {want.prefix} table {want.table} asked via {', '.join(want.via)}, "
        f"kernel has {', '.join(got.get((want.prefix, want.table), ())) or 'none'}"
        for want in node.routes
        if got.get((want.prefix, want.table)) != want.via
    ]


def _static_routes(netlink: Netlink, names: dict[int, str]) -> Iterator[tuple[tuple[str, int], tuple[str, ...]]]:
    """((prefix, table), own interfaces) of what was set up; the kernel's own routes are passed over undecoded."""
    request = rtmsg()
    request["family"] = socket.AF_INET
    for raw in netlink.dump_raw(request, RTM_GETROUTE):
        if raw[PROTO_OFFSET] == RTPROT_STATIC:
            message = rtmsg(raw)
            message.decode()
            yield _key(message), _via(message, names)


@functools.cache
def _address_template() -> Template:
    message = ifaddrmsg()
    message["family"], message["prefixlen"], message["index"] = socket.AF_INET, 31, mark_number(0)
    message["attrs"] = [("IFA_LOCAL", mark_address(1)), ("IFA_ADDRESS", mark_address(2))]
    slots = {"ifindex": mark_number(0), "local": mark_address(1), "address": mark_address(2)}
    return Template(message, RTM_NEWADDR, CREATE, slots)


@functools.cache
def _neighbour_template() -> Template:
    message = ndmsg()
    message["family"], message["ifindex"], message["state"] = socket.AF_INET, mark_number(0), NUD_PERMANENT
    message["attrs"] = [("NDA_DST", mark_address(1)), ("NDA_LLADDR", mark_mac(2))]
    slots = {"ifindex": mark_number(0), "address": mark_address(1), "mac": mark_mac(2)}
    return Template(message, RTM_NEWNEIGH, CREATE, slots)


@functools.cache
def _rule_template(kind: str) -> Template:
    """`kind` is FRA_SRC or FRA_OIFNAME. The table is an attribute: its 8-bit field in the header stays unspecified."""
    mark = mark_address(0) if kind == "FRA_SRC" else mark_name(0)
    message = fibmsg()
    message["family"], message["action"], message["table"] = socket.AF_INET, FR_ACT_TO_TBL, RT_TABLE_UNSPEC
    message["src_len"] = 32 if kind == "FRA_SRC" else 0
    message["attrs"] = [(kind, mark), ("FRA_TABLE", mark_number(1)), ("FRA_PRIORITY", RULE_PRIORITY)]
    return Template(message, RTM_NEWRULE, CREATE, {"selector": mark, "table": mark_number(1)})


@functools.cache
def _route_template(prefixlen: int, flags: int) -> Template:
    """A route over one interface; the default route has no destination to fill in."""
    message = _route_message(prefixlen, mark_address(0), mark_number(1))
    message["attrs"] += [("RTA_GATEWAY", mark_address(2)), ("RTA_OIF", mark_number(3))]
    slots = {"table": mark_number(1), "gateway": mark_address(2), "oif": mark_number(3)}
    return Template(message, RTM_NEWROUTE, flags, slots | ({"destination": mark_address(0)} if prefixlen else {}))


def _route_message(prefixlen: int, destination: str, table: int) -> rtmsg:
    """The table is an attribute: its 8-bit field in the header stays unspecified."""
    message = rtmsg()
    message["family"], message["dst_len"], message["table"] = socket.AF_INET, prefixlen, RT_TABLE_UNSPEC
    message["proto"], message["scope"], message["type"] = RTPROT_STATIC, RT_SCOPE_UNIVERSE, RTN_UNICAST
    message["attrs"] = [("RTA_TABLE", table), *([("RTA_DST", destination)] if prefixlen else [])]
    return message


def _key(message: rtmsg) -> tuple[str, int]:
    return f"{message.get_attr('RTA_DST') or '0.0.0.0'}/{message['dst_len']}", message.get_attr("RTA_TABLE")


def _via(message: rtmsg, names: dict[int, str]) -> tuple[str, ...]:
    hops = message.get_attr("RTA_MULTIPATH")
    indexes = [hop["oif"] for hop in hops] if hops else [message.get_attr("RTA_OIF")]
    return tuple(names.get(index, "?") for index in indexes)


def _hop(port: PortPlan) -> dict:
    return {"hops": 0, "flags": 0, "oif": port.ifindex, "attrs": [("RTA_GATEWAY", port.peer_address)]}
