"""Addresses, hardware addresses and interface numbers: all derived, none looked up.

NICs: 10.0.0.0/8, one prefix per access switch, a /31 per NIC (switch port even, NIC odd), so that one route
reaches everything under a leaf. Fabric links: a /31 each from 172.16.0.0/12. Cables between two servers' GPUs: a /31 each
from 100.64.0.0/10, which no switch routes. Interface numbers count through the whole
fabric: the kernel only asks for uniqueness per namespace, but a BPF program that sees skb->ifindex then knows the port.
"""

from __future__ import annotations

import ipaddress

from emu.errors import TopologyError

NIC_NET = ipaddress.ip_network("10.0.0.0/8")
FABRIC_NET = ipaddress.ip_network("172.16.0.0/12")
DIRECT_NET = ipaddress.ip_network("100.64.0.0/10")
FIRST_IFINDEX = 2  # 1 is lo in every namespace


def access_prefix(switch: int, ports: int) -> ipaddress.IPv4Network:
    """The prefix of access switch number `switch` when the largest one has `ports` NICs: 2 addresses a NIC."""
    size = max(2, 1 << (2 * ports - 1).bit_length())
    if (switch + 1) * size > NIC_NET.num_addresses:
        raise TopologyError(f"access switch {switch} with {ports} NICs does not fit {NIC_NET}; use fewer or smaller leaves")
    return ipaddress.IPv4Network((int(NIC_NET.network_address) + switch * size, 33 - size.bit_length()))


def nic_pair(prefix: ipaddress.IPv4Network, place: int) -> tuple[str, str]:
    """(switch port, NIC) addresses of the `place`-th NIC under an access switch."""
    base = int(prefix.network_address) + 2 * place
    return str(ipaddress.IPv4Address(base)), str(ipaddress.IPv4Address(base + 1))


def fabric_pair(link: int) -> tuple[str, str]:
    """(a, b) addresses of the `link`-th switch-to-switch link."""
    return _pair(FABRIC_NET, link)


def direct_pair(link: int) -> tuple[str, str]:
    """(a, b) addresses of the `link`-th server-to-server link."""
    return _pair(DIRECT_NET, link)


def _pair(net: ipaddress.IPv4Network, link: int) -> tuple[str, str]:
    if 2 * link + 1 >= net.num_addresses:
        raise TopologyError(f"link {link} does not fit {net}")
    base = int(net.network_address) + 2 * link
    return str(ipaddress.IPv4Address(base)), str(ipaddress.IPv4Address(base + 1))


def mac(ifindex: int) -> str:
    """Locally administered, readable: 02:52 ('R') and the interface number."""
    return f"02:52:{ifindex >> 24 & 0xFF:02x}:{ifindex >> 16 & 0xFF:02x}:{ifindex >> 8 & 0xFF:02x}:{ifindex & 0xFF:02x}"
