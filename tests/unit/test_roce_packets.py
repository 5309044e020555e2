"""Crafted frames equal captured ones and a full Scapy build, byte for byte, whatever the length."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from emu.errors import UsageError
from emu.roce import packets
from emu.roce.flow import Flow, udp_source_port
from emu.roce.headers import AETH, BTH, RETH, CNPPadding
from emu.roce.icrc import verify
from emu.roce.opcodes import NakCode
from emu.roce.packets import ack, cnp, field_span, nak, write_frames, write_packet

ADDRESSES = dict(src_mac="02:00:00:00:00:01", dst_mac="02:00:00:00:01:01", src_ip="10.0.0.1", dst_ip="10.0.1.1")
FLOW = Flow(**ADDRESSES, src_qpn=0x11, dst_qpn=0x22, rkey=0xDEADBEEF)
FLOW_IPV6 = Flow(**ADDRESSES | dict(src_ip="fd00::1", dst_ip="fd00::2"), src_qpn=0x11, dst_qpn=0x22, rkey=7)
VA = 0x7F00_0000_1000

path_mtus = st.sampled_from([256, 512])
# st.binary alone almost never grows past one packet.
payloads = st.builds(lambda nbytes, seed: random.Random(seed).randbytes(nbytes), st.integers(0, 1300), st.integers())


def test_write_equals_the_cross_checked_vector():
    flow = Flow(**ADDRESSES, src_qpn=1, dst_qpn=0x123456, rkey=0xDEADBEEF, udp_sport=0xC001)
    (frame,) = write_frames(flow, va=VA, payload=b"hello", path_mtu=1024, first_psn=0x102)
    assert frame.hex() == (
        "0200000001010200000000010800456a0044000040004011253e0a0000010a000101c00112b7003000000a30ffff001234568000010200007f"
        "0000001000deadbeef0000000568656c6c6f0000005b3e4395"
    )


def test_ack_equals_the_cross_checked_vector():
    back = Flow(**ADDRESSES, src_qpn=1, dst_qpn=0x123456, udp_sport=0xC001)
    assert ack(back.reverse(), psn=0x102, msn=1).hex() == (
        "0200000001010200000000010800456a003000004000401125520a0000010a000101c00112b7001c00001100ffff00123456000001021f0000"
        "01c44730e5"
    )


def test_cnp_equals_one_captured_from_a_connectx4():
    data = Flow(
        src_mac="e4:1d:2d:ab:2b:c2",
        dst_mac="7c:fe:90:64:3b:32",
        src_ip="10.0.18.1",
        dst_ip="10.0.17.1",
        src_qpn=0x118,
        dst_qpn=0x200,
    )
    assert cnp(data, ip_id=0x718C).hex() == (
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000"
        "000000000000000000000000000082fd002a"
    )


@settings(deadline=None, max_examples=30)
@given(
    flow=st.sampled_from([FLOW, FLOW_IPV6]),
    payload=payloads,
    path_mtu=path_mtus,
    first_psn=st.one_of(st.integers(0, 2**24 - 1), st.integers(2**24 - 4, 2**24 - 1)),
    first_ip_id=st.sampled_from([0, 77, 65534]),
)
def test_patched_frames_equal_a_full_scapy_build(flow, payload, path_mtu, first_psn, first_ip_id):
    frames = write_frames(
        flow, va=VA, payload=payload, path_mtu=path_mtu, first_psn=first_psn, first_ip_id=first_ip_id
    )
    assert len(frames) == max(1, -(-len(payload) // path_mtu))
    for index, frame in enumerate(frames):
        built = write_packet(
            flow,
            va=VA + index * path_mtu,
            payload=payload[index * path_mtu : (index + 1) * path_mtu],
            psn=(first_psn + index) % 2**24,
            message_bytes=len(payload),
            ack_req=index == len(frames) - 1,
            ip_id=(first_ip_id + index) % 2**16,
        )
        assert frame == built, f"packet {index} of {len(frames)}"


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 257, 1023, 1024, 1025, 3 * 1024 + 5])
@pytest.mark.parametrize("flow", [FLOW, FLOW_IPV6], ids=["ipv4", "ipv6"])
def test_scapy_dissects_every_frame_with_its_own_address_and_psn(flow, nbytes):
    first_psn = 2**24 - 2
    for index, frame in enumerate(write_frames(flow, va=VA, payload=nbytes, path_mtu=1024, first_psn=first_psn)):
        got = Ether(frame)
        part = min(1024, nbytes - index * 1024)
        network = IPv6 if flow.ipv6 else IP
        names = [network, UDP, BTH, RETH] + ([Raw] if part else [])
        assert [type(layer) for layer in map(got.getlayer, range(1, 1 + len(names)))] == names
        assert (got[RETH].va, got[RETH].rkey, got[RETH].dmalen) == (VA + index * 1024, flow.rkey, nbytes)
        assert (got[BTH].psn, got[BTH].dqpn) == ((first_psn + index) % 2**24, flow.dst_qpn)
        assert got[BTH].padcount == -part % 4
        assert (got[UDP].sport, got[UDP].dport, got[UDP].chksum) == (flow.sport, 4791, 0)
        assert verify(frame)


def test_data_is_marked_ect0_with_dscp_26_and_not_fragmented():
    got = Ether(write_frames(FLOW, va=0, payload=1, path_mtu=1024)[0])[IP]
    assert (got.tos, got.flags, got.ttl) == (106, "DF", 64)
    assert Ether(write_frames(FLOW_IPV6, va=0, payload=1, path_mtu=1024)[0])[IPv6].tc == 106


def test_only_the_last_packet_asks_for_an_ack():
    frames = write_frames(FLOW, va=0, payload=4000, path_mtu=1024)
    assert [Ether(frame)[BTH].ackreq for frame in frames] == [0, 0, 0, 1]


def test_each_ip_checksum_is_right_without_a_switch_to_mend_it():
    for frame in write_frames(FLOW, va=0, payload=3000, path_mtu=1024, first_ip_id=0xFFFE):
        words = [int.from_bytes(frame[i : i + 2], "big") for i in range(14, 34, 2)]
        assert sum(words) % 0xFFFF == 0, f"IP header {frame[14:34].hex()}"


def test_a_message_of_any_length_costs_two_scapy_builds(monkeypatch):
    builds = []
    build = packets.roce_frame
    monkeypatch.setattr(packets, "roce_frame", lambda *args, **kwargs: builds.append(1) or build(*args, **kwargs))
    assert len(write_frames(FLOW, va=0, payload=1_000_001, path_mtu=1024)) == 977
    assert len(builds) == 2


def test_ack_and_nak_go_back_to_the_sender_of_the_data():
    for frame, syndrome in [
        (ack(FLOW, psn=5, msn=2), 0x1F),
        (nak(FLOW, psn=5, msn=2), 0x60),
        (nak(FLOW, psn=5, msn=2, code=NakCode.REMOTE_ACCESS_ERROR), 0x62),
    ]:
        got = Ether(frame)
        assert (got.src, got.dst, got[IP].src, got[IP].dst) == (FLOW.dst_mac, FLOW.src_mac, FLOW.dst_ip, FLOW.src_ip)
        assert (got[BTH].opcode, got[BTH].dqpn, got[BTH].psn) == (0x11, FLOW.src_qpn, 5)
        assert (got[AETH].syndrome, got[AETH].msn) == (syndrome, 2)
        assert got[UDP].sport == FLOW.sport, "both directions of a queue pair use one source port"
        assert verify(frame)


def test_cnp_names_the_queue_pair_that_has_to_slow_down():
    got = Ether(cnp(FLOW))
    assert (got[BTH].opcode, got[BTH].becn, got[BTH].psn, got[BTH].dqpn) == (0x81, 1, 0, FLOW.src_qpn)
    assert (got[IP].dst, len(got), CNPPadding in got) == (FLOW.src_ip, 74, True)


@pytest.mark.parametrize(
    ("src_qpn", "dst_qpn", "sport"),
    # By hand: product folded by 20 and 40 bits, low 14 bits xor the six above, top bits 11.
    [(1, 1, 0xC001), (0x100, 0x200, 0xC008), (0xFFFFFF, 0xFFFFFF, 0xFF21), (0, 5, 0xC000)],
)
def test_source_port_follows_the_linux_formula(src_qpn, dst_qpn, sport):
    assert udp_source_port(src_qpn, dst_qpn) == sport


@given(st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1))
def test_source_port_is_symmetric_and_ephemeral(a, b):
    assert udp_source_port(a, b) == udp_source_port(b, a)
    assert 0xC000 <= udp_source_port(a, b) <= 0xFFFF


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(src_qpn=2**24), "src_qpn 16777216: allowed 0 to 16777215"),
        (dict(rkey=-1), "rkey -1: allowed 0 to 4294967295"),
        (dict(dscp=64), "dscp 64: allowed 0 to 63"),
        (dict(udp_sport=65536), "udp_sport 65536: allowed 0 to 65535"),
        (dict(src_mac="02:00:00:00:00"), "src_mac '02:00:00:00:00': a MAC address is six"),
        (dict(dst_ip="10.0.0"), "dst_ip '10.0.0': not an IPv4 or IPv6 address"),
        (dict(dst_ip="fd00::1"), "both addresses must be IPv4 or both IPv6"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_flow_that_no_header_could_hold_is_refused_in_one_line(change, says):
    with pytest.raises(UsageError, match=says) as refusal:
        Flow(**ADDRESSES | dict(src_qpn=1, dst_qpn=2) | change)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(va=0, payload=1, path_mtu=1500), "path MTU 1500 does not exist"),
        (dict(va=0, payload=-1, path_mtu=1024), "message of -1 bytes"),
        (dict(va=0, payload=2**31 + 1, path_mtu=1024), "RDMA allows 0 to 2147483648"),
        (dict(va=2**64 - 1, payload=2, path_mtu=1024), "leaves the 64-bit address space"),
        (dict(va=0, payload=1, path_mtu=1024, first_psn=-1), "first_psn -1: allowed 0 to 16777215"),
    ],
    ids=["path mtu", "negative", "too long", "address", "psn"],
)
def test_a_message_that_cannot_be_sent_is_refused_in_one_line(arguments, says):
    with pytest.raises(UsageError, match=says):
        write_frames(FLOW, **arguments)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: ack(FLOW, psn=2**24, msn=0), "psn 16777216: allowed 0 to 16777215"),
        (lambda: nak(FLOW, psn=0, msn=-1), "msn -1: allowed 0 to 16777215"),
        (lambda: ack(FLOW, psn=0, msn=0, credits=32), "credits 32: allowed 0 to 31"),
        (lambda: write_packet(FLOW, va=2**64, payload=b"", psn=0, message_bytes=0), "leaves the 64-bit address space"),
    ],
    ids=["psn", "msn", "credits", "address"],
)
def test_a_field_too_large_for_its_header_is_refused_and_not_cut(build, says):
    with pytest.raises(UsageError, match=says):
        build()


def test_offsets_come_from_scapys_layout_and_match_the_wire_tables():
    layout = Ether(write_packet(FLOW, va=VA, payload=b"1234", psn=1, message_bytes=4))
    assert field_span(layout, IP, "id") == slice(18, 20)
    assert field_span(layout, IP, "chksum") == slice(24, 26)
    assert field_span(layout, BTH, "psn") == slice(14 + 20 + 8 + 9, 14 + 20 + 8 + 12)
    assert field_span(layout, RETH, "va") == slice(14 + 20 + 8 + 12, 14 + 20 + 8 + 12 + 8)
