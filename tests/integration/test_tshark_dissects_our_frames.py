"""Wireshark reads what we write: every frame is RoCE, none is malformed, and the fields are the ones we put in.

This tshark shows the iCRC but does not check it, so the check is a bit-by-bit CRC written here from the standard's
polynomial, which shares nothing with zlib, Scapy or emu.roce.icrc.
"""

import shutil
import subprocess
from itertools import islice

import pytest
from scapy.utils import wrpcap

from emu.roce.flow import Flow
from emu.roce.headers import AETH, BTH, DETH, IETH, RETH, AtomicAckETH, AtomicETH, ImmDt
from emu.roce.opcodes import NakCode, Opcode
from emu.roce.packets import ack, cnp, nak, roce_frame, write_frames

pytestmark = [
    pytest.mark.needs_tshark,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (Debian package tshark)"),
]

FLOW = Flow(
    src_mac="02:00:00:00:00:01",
    dst_mac="02:00:00:00:01:01",
    src_ip="10.0.0.1",
    dst_ip="10.0.1.1",
    src_qpn=0x11,
    dst_qpn=0x22,
    rkey=0xDEADBEEF,
)
VA = 0x7F00_0000_1000
FIRST_PSN = 2**24 - 2  # wraps inside the message
MESSAGE_BYTES = 3 * 1024 + 5
LINKTYPE_ETHERNET = 1
CRC32_POLYNOMIAL = 0x04C11DB7


def one(opcode, psn, *headers, payload=b"", **bth):
    packet = BTH(opcode=int(opcode), psn=psn, **bth)
    for header in headers:
        packet = packet / header
    return roce_frame(FLOW, packet, payload)


READ_RETH = RETH(va=VA, rkey=FLOW.rkey, dmalen=1500)
AETH_OK = AETH(syndrome=0x1F, msn=3)
WRITES = write_frames(FLOW, va=VA, payload=MESSAGE_BYTES, path_mtu=1024, first_psn=FIRST_PSN)
OTHERS = [
    ack(FLOW, psn=1, msn=1),
    nak(FLOW, psn=2, msn=1),
    nak(FLOW, psn=2, msn=1, code=NakCode.REMOTE_ACCESS_ERROR),
    cnp(FLOW),
    one(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, 10, ImmDt(data=0x01020304), payload=b"immediate", solicited=1),
    one(Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 11, RETH(va=VA, dmalen=2), ImmDt(data=9), payload=b"ab"),
    one(Opcode.RC_RDMA_READ_REQUEST, 12, READ_RETH),
    one(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 12, AETH_OK, payload=bytes(1024)),
    one(Opcode.RC_RDMA_READ_RESPONSE_LAST, 13, AETH_OK, payload=bytes(476)),
    one(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, 14, IETH(rkey=0xCAFEF00D), payload=bytes(33)),
    one(Opcode.RC_FETCH_ADD, 15, AtomicETH(va=VA, rkey=1, swap=2)),
    one(Opcode.RC_ATOMIC_ACKNOWLEDGE, 15, AETH_OK, AtomicAckETH(original=40)),
    one(Opcode.UD_SEND_ONLY, 16, DETH(qkey=0x80010000, srcqp=0x11), payload=b"datagram"),
]
FRAMES = WRITES + OTHERS
FIELDS = {
    "layers": "frame.protocols",
    "malformed": "_ws.malformed",
    "opcode": "infiniband.bth.opcode",
    "psn": "infiniband.bth.psn",
    "dst_qpn": "infiniband.bth.destqp",
    "pad": "infiniband.bth.padcnt",
    "va": "infiniband.reth.va",
    "rkey": "infiniband.reth.r_key",
    "dmalen": "infiniband.reth.dmalen",
    "syndrome": "infiniband.aeth.syndrome",
    "msn": "infiniband.aeth.msn",
    "imm": "infiniband.immdt",
    "ieth": "infiniband.ieth",
    "original": "infiniband.atomicacketh.origremdt",
    "swap": "infiniband.atomiceth.swapdt",
    "src_qpn": "infiniband.deth.srcqp",
    "icrc": "infiniband.invariant.crc",
    "time": "frame.time_epoch",
}


@pytest.fixture(scope="module")
def dissected(tmp_path_factory):
    """One dictionary per frame: what tshark read."""
    capture = tmp_path_factory.mktemp("capture") / "roce.pcap"
    wrpcap(str(capture), FRAMES, linktype=LINKTYPE_ETHERNET, nano=True)
    return [dict(zip(FIELDS, line.split("|"), strict=True)) for line in tshark(capture, FIELDS.values())]


def tshark(capture, fields):
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    for field in fields:
        command += ["-e", field]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def numbers(rows, name):
    return [int(row[name], 0) for row in rows]


def test_every_frame_is_roce_and_none_is_malformed(dissected):
    assert len(dissected) == len(FRAMES)
    for row in dissected:
        assert row["layers"].startswith("eth:ethertype:ip:udp:infiniband"), row
        assert not row["malformed"], row


def test_a_frame_cut_short_would_be_seen_as_malformed(tmp_path):
    capture = tmp_path / "cut.pcap"
    wrpcap(str(capture), [one(Opcode.RC_RDMA_READ_REQUEST, 1)], linktype=LINKTYPE_ETHERNET, nano=True)
    (shown,) = tshark(capture, ["_ws.malformed"])
    assert "Malformed" in shown, f"READ request without RETH: {shown!r}"


def test_tshark_reads_the_addresses_and_psns_of_the_message(dissected):
    rows = dissected[: len(WRITES)]
    assert numbers(rows, "psn") == [2**24 - 2, 2**24 - 1, 0, 1]
    assert numbers(rows, "va") == [VA, VA + 1024, VA + 2048, VA + 3072]
    assert numbers(rows, "pad") == [0, 0, 0, 3]
    assert set(numbers(rows, "dmalen")) == {MESSAGE_BYTES}
    assert set(numbers(rows, "rkey")) == {FLOW.rkey}
    assert set(numbers(rows, "dst_qpn")) == {FLOW.dst_qpn}


def test_tshark_reads_the_other_headers(dissected):
    answers, (congestion,), immediates, (read,), responses, (invalidate,), (add,), (atomic_ack,), (datagram,) = split(
        dissected[len(WRITES) :], [3, 1, 2, 1, 2, 1, 1, 1, 1]
    )
    assert numbers(answers, "syndrome") == [0x1F, 0x60, 0x62]
    assert numbers(answers, "psn") == [1, 2, 2]
    assert numbers([congestion], "opcode") + numbers([congestion], "dst_qpn") == [0x81, FLOW.src_qpn]
    assert [int(row["imm"], 16) for row in immediates] == [0x01020304, 9]
    assert numbers([read], "va") + numbers([read], "dmalen") == [VA, 1500]
    assert numbers([*responses, atomic_ack], "msn") == [3, 3, 3]
    assert [int(invalidate["ieth"], 16)] == [0xCAFEF00D]
    assert numbers([add], "swap") + numbers([atomic_ack], "original") == [2, 40]
    assert numbers([datagram], "src_qpn") == [FLOW.src_qpn]


def split(rows, sizes):
    rest = iter(rows)
    return [list(islice(rest, size)) for size in sizes]


def test_the_capture_keeps_nanoseconds(dissected):
    assert all(len(row["time"].split(".")[1]) == 9 for row in dissected)


def bitwise_crc32(data):
    """CRC-32 of IEEE 802.3 as the standard words it: bits in wire order through the polynomial, complemented."""
    register = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            feedback = (register >> 31) ^ (byte >> bit & 1)
            register = (register << 1 & 0xFFFFFFFF) ^ (CRC32_POLYNOMIAL if feedback else 0)
    complement = register ^ 0xFFFFFFFF
    return int(f"{complement:032b}"[::-1], 2)


def reference_icrc(frame):
    """iCRC in wire order of an untagged IPv4 frame without options."""
    covered = bytearray(8) + frame[14:-4]
    ip, udp, bth = 8, 8 + 20, 8 + 20 + 8
    ones = [*range(8), ip + 1, ip + 8, ip + 10, ip + 11, udp + 6, udp + 7, bth + 4]
    for position in ones:
        covered[position] = 0xFF
    return bitwise_crc32(covered).to_bytes(4, "little")


def test_the_reference_crc_gives_the_catalogued_check_value():
    assert bitwise_crc32(b"123456789") == 0xCBF43926


def test_the_icrc_that_tshark_shows_is_right_by_an_independent_crc(dissected):
    for row, frame in zip(dissected, FRAMES, strict=True):
        expected = reference_icrc(frame)
        # tshark 4.0 does not know the CNP and shows its iCRC among vendor data, so there the frame itself is asked.
        unknown_to_tshark = int(row["opcode"]) == Opcode.CNP and not row["icrc"]
        shown = frame[-4:].hex() if unknown_to_tshark else row["icrc"].removeprefix("0x")
        assert shown == expected.hex(), f"opcode {row['opcode']}: shown {shown}, reference {expected.hex()}"


def test_the_reference_agrees_with_a_captured_cnp():
    captured = bytes.fromhex(
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118"
        "000000000000000000000000000000000000000082fd002a"
    )
    assert reference_icrc(captured) == captured[-4:]
