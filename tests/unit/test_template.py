"""Promises about filled netlink templates: they are byte for byte what pyroute2 would have encoded."""

from __future__ import annotations

import socket

import pytest
from pyroute2.netlink.rtnl import RTM_NEWADDR, RTM_NEWNEIGH
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from emu.fabric.attributes import attributes, text, u32
from emu.fabric.netlink import CREATE
from emu.fabric.template import Template, mark_address, mark_mac, mark_number, packed


def address_message(ifindex, address):
    message = ifaddrmsg()
    message["family"], message["prefixlen"], message["index"] = socket.AF_INET, 31, ifindex
    message["attrs"] = [("IFA_LOCAL", address)]
    return message


def encoded(message, kind):
    message["header"]["type"], message["header"]["flags"] = kind, CREATE
    message.encode()
    return bytes(message.data)


@pytest.mark.parametrize(("ifindex", "address"), [(2, "10.0.0.1"), (65536, "172.31.255.255"), (1 << 30, "0.0.0.0")])
def test_a_filled_template_is_what_pyroute2_encodes(ifindex, address):
    slots = {"ifindex": mark_number(0), "address": mark_address(1)}
    template = Template(address_message(mark_number(0), mark_address(1)), RTM_NEWADDR, CREATE, slots)
    want = encoded(address_message(ifindex, address), RTM_NEWADDR)
    assert bytes(template.fill(ifindex=ifindex, address=address)) == want


def test_filling_one_message_leaves_the_next_untouched():
    message = ndmsg()
    message["family"], message["ifindex"] = socket.AF_INET, mark_number(0)
    message["attrs"] = [("NDA_LLADDR", mark_mac(1))]
    template = Template(message, RTM_NEWNEIGH, CREATE, {"ifindex": mark_number(0), "mac": mark_mac(1)})
    first = template.fill(ifindex=7, mac="02:52:00:00:00:07")
    kept = bytes(first)
    template.fill(ifindex=8, mac="02:52:00:00:00:08")
    assert bytes(first) == kept and packed("02:52:00:00:00:07") in kept


def test_a_mark_that_is_not_in_the_message_or_there_twice_is_refused():
    with pytest.raises(ValueError, match="stands 0 times"):
        Template(address_message(2, "10.0.0.1"), RTM_NEWADDR, CREATE, {"ifindex": mark_number(0)})
    twice = address_message(2, mark_address(1))
    twice["attrs"].append(("IFA_ADDRESS", mark_address(1)))
    with pytest.raises(ValueError, match="stands 2 times"):
        Template(twice, RTM_NEWADDR, CREATE, {"address": mark_address(1)})


def test_attributes_are_found_where_pyroute2_put_them():
    data = encoded(address_message(9, "10.1.2.3"), RTM_NEWADDR)
    found = attributes(data, 16 + 8)  # struct nlmsghdr, struct ifaddrmsg
    assert found == {2: socket.inet_aton("10.1.2.3")}, found


def test_a_truncated_attribute_ends_the_walk_instead_of_looping():
    assert attributes(b"\x00\x00\x01\x00" * 4) == {}
    assert (u32(b"\x01\x02\x00\x00"), text(b"rail0\0\0")) == (513, "rail0")
