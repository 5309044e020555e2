"""The iCRC agrees with captured packets, and leaves out exactly the fields that a router changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from emu.errors import UsageError
from emu.roce.headers import BTH, RETH
from emu.roce.icrc import icrc, verify

# A and B: captures asserted in scapy's test/contrib/roce.uts (A: UC SEND ONLY, B: CNP of a ConnectX-4 Lx).
# D: made here, cross-checked by two implementations (RC WRITE ONLY with 3 bytes of pad; RC ACK).
VECTORS = {
    "A_uc_send": (
        "248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d3"
        "00cf17104630818be28935d90e9a95505401be885e50000078f353f3"
    ),
    "B_cnp_connectx4": (
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118"
        "000000000000000000000000000000000000000082fd002a"
    ),
    "D_write_only": (
        "0200000001010200000000010800456a0044000040004011253e0a0000010a000101c00112b7003000000a30ffff00123456"
        "8000010200007f0000001000deadbeef0000000568656c6c6f0000005b3e4395"
    ),
    "D_ack": (
        "0200000001010200000000010800456a003000004000401125520a0000010a000101c00112b7001c00001100ffff00123456"
        "000001021f000001c44730e5"
    ),
}
FRAMES = {name: bytes.fromhex(text) for name, text in VECTORS.items()}
ETHERNET, IPV4, IPV6 = 14, 20, 40
IPV4_ROUTER_BYTES = {
    *range(12),  # MAC addresses
    ETHERNET + 1,  # ToS
    ETHERNET + 8,  # TTL
    *(ETHERNET + 10, ETHERNET + 11),  # header checksum
    *(ETHERNET + IPV4 + 6, ETHERNET + IPV4 + 7),  # UDP checksum
    ETHERNET + IPV4 + 8 + 4,  # BTH: FECN, BECN
}

each_vector = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())


def ipv6_frame(**bth):
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IPv6(src="fd00::1", dst="fd00::2", tc=106, fl=5)
    return bytes(packet / UDP(sport=50000, dport=4791, chksum=0) / BTH(opcode=0x04, **bth) / Raw(b"payload!"))


def flipped(frame, byte, bit):
    changed = bytearray(frame)
    changed[byte] ^= 1 << bit
    return bytes(changed)


def bits_that_may_change(frame):
    """(byte, bit) positions whose flip leaves the iCRC right."""
    return {(byte, bit) for byte in range(len(frame)) for bit in range(8) if verify(flipped(frame, byte, bit))}


def whole_bytes(*positions):
    return {(byte, bit) for byte in positions for bit in range(8)}


@each_vector
def test_icrc_equals_the_captured_bytes(frame):
    got = icrc(frame[ETHERNET:])
    assert got == frame[-4:], f"computed {got.hex()}, captured {frame[-4:].hex()}"
    assert verify(frame)


@each_vector
def test_icrc_does_not_depend_on_the_four_bytes_it_goes_into(frame):
    assert icrc(frame[ETHERNET:-4]) == icrc(frame[ETHERNET:-4] + b"junk") == frame[-4:]


@each_vector
def test_exactly_the_router_fields_of_ipv4_may_change(frame):
    expected = whole_bytes(*IPV4_ROUTER_BYTES)
    got = bits_that_may_change(frame)
    assert got == expected, f"covered but should not be: {expected - got}; not covered: {got - expected}"


def test_exactly_the_router_fields_of_ipv6_may_change():
    class_and_label = {(ETHERNET, bit) for bit in range(4)} | whole_bytes(ETHERNET + 1, ETHERNET + 2, ETHERNET + 3)
    udp_checksum = (ETHERNET + IPV6 + 6, ETHERNET + IPV6 + 7)
    congestion = ETHERNET + IPV6 + 8 + 4
    expected = class_and_label | whole_bytes(*range(12), ETHERNET + 7, *udp_checksum, congestion)
    got = bits_that_may_change(ipv6_frame())
    assert got == expected, f"covered but should not be: {expected - got}; not covered: {got - expected}"


@each_vector
def test_a_switch_that_marks_ce_and_counts_ttl_down_does_not_break_it(frame):
    hop = Ether(frame)
    hop[IP].tos |= 0b11
    hop[IP].ttl -= 1
    hop[IP].chksum = None
    forwarded = bytes(hop)
    assert forwarded != frame
    assert verify(forwarded)


@each_vector
@pytest.mark.parametrize("tags", ["8100002a", "88a80001" + "8100002a"], ids=["one", "two"])
def test_vlan_tags_are_not_covered(frame, tags):
    assert verify(frame[:12] + bytes.fromhex(tags) + frame[12:])


@each_vector
def test_ethernet_padding_is_not_covered_but_a_missing_byte_is_noticed(frame):
    assert verify(frame + bytes(6))
    assert not any(verify(frame[:length]) for length in range(len(frame)))


@settings(deadline=None)
@given(
    ipv6=st.booleans(),
    payload=st.binary(max_size=64).map(lambda data: data + bytes(-len(data) % 4)),
    sport=st.integers(0, 65535),
    tos=st.integers(0, 255),
    ttl=st.integers(1, 255),
    psn=st.integers(0, 2**24 - 1),
    becn=st.integers(0, 1),
)
def test_icrc_agrees_with_scapys_own_for_any_packet(ipv6, payload, sport, tos, ttl, psn, becn):
    ip = IPv6(src="fd00::1", dst="fd00::2", tc=tos, hlim=ttl) if ipv6 else IP(src="1.2.3.4", dst="5.6.7.8")
    if not ipv6:
        ip.tos, ip.ttl = tos, ttl
    bth = BTH(opcode=0x0A, psn=psn, becn=becn) / RETH(va=psn)
    packet = bytes(ip / UDP(sport=sport, dport=4791, chksum=0) / bth / Raw(payload))
    assert icrc(packet) == packet[-4:]


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_refused_without_an_exception(junk):
    assert not verify(junk)


@given(st.sampled_from(list(FRAMES.values())), st.data())
def test_a_burst_of_damage_is_found_unless_it_hits_router_fields_only(frame, data):
    start = data.draw(st.integers(0, len(frame) - 4))
    damaged = frame[:start] + data.draw(st.binary(min_size=4, max_size=4)) + frame[start + 4 :]
    changed = {byte for byte in range(len(frame)) if frame[byte] != damaged[byte]}
    assert verify(damaged) == (changed <= IPV4_ROUTER_BYTES), f"changed bytes {sorted(changed)}"


@pytest.mark.parametrize(("udp_field", "value"), [(2, 53), (4, 44)], ids=["another port", "length that disagrees"])
def test_a_udp_header_that_is_not_roces_is_refused_even_with_the_right_crc(udp_field, value):
    other = bytearray(FRAMES["D_write_only"])
    start = ETHERNET + IPV4 + udp_field
    other[start : start + 2] = value.to_bytes(2, "big")
    other[-4:] = icrc(bytes(other[ETHERNET:]))
    assert not verify(bytes(other))


@pytest.mark.parametrize(
    "packet",
    [b"", b"\x45" * 10, bytes(60), FRAMES["D_ack"][ETHERNET:-5], bytes(IP(dst="1.2.3.4") / Raw(bytes(60)))],
    ids=["empty", "short", "version 0", "cut off", "not UDP"],
)
def test_icrc_of_something_else_is_refused_in_one_line(packet):
    with pytest.raises(UsageError, match=f"no iCRC for these {len(packet)} bytes") as refusal:
        icrc(packet)
    assert "\n" not in str(refusal.value)
