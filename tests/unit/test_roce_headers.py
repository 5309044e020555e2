"""Every RC opcode is dissected into the headers it carries, and the layouts have the sizes of the standard."""

import subprocess
import sys

import pytest
from scapy.contrib import roce
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from emu.roce.headers import AETH, BTH, DETH, IETH, RETH, AtomicAckETH, AtomicETH, CNPPadding, ImmDt, padcount
from emu.roce.opcodes import Opcode

RETH_X = RETH(va=0x7F00_0000_1000, rkey=0xDEADBEEF, dmalen=4096)
IMM_X = ImmDt(data=0x01020304)
AETH_X = AETH(syndrome=0x1F, msn=0xABCDEF)
DETH_X = DETH(qkey=0x80010000, srcqp=0x123456)
ATOMIC_X = AtomicETH(va=0x1122334455667788, rkey=7, swap=2**63 + 1, compare=3)

# Written from rxe_opcode.c, not from emu.roce.opcodes, so that a slip there shows here.
CARRIES = [
    (0x00, []),
    (0x01, []),
    (0x02, []),
    (0x03, [IMM_X]),
    (0x04, []),
    (0x05, [IMM_X]),
    (0x06, [RETH_X]),
    (0x07, []),
    (0x08, []),
    (0x09, [IMM_X]),
    (0x0A, [RETH_X]),
    (0x0B, [RETH_X, IMM_X]),
    (0x0C, [RETH_X]),
    (0x0D, [AETH_X]),
    (0x0E, []),
    (0x0F, [AETH_X]),
    (0x10, [AETH_X]),
    (0x11, [AETH_X]),
    (0x12, [AETH_X, AtomicAckETH(original=2**64 - 2)]),
    (0x13, [ATOMIC_X]),
    (0x14, [ATOMIC_X]),
    (0x16, [IETH(rkey=0xCAFEF00D)]),
    (0x17, [IETH(rkey=0xCAFEF00D)]),
    (0x64, [DETH_X]),
    (0x65, [DETH_X, IMM_X]),
]
PAYLOAD = b"four" * 3


def frame_of(opcode, headers):
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
    packet = packet / UDP(sport=49152, dport=4791) / BTH(opcode=opcode, dqpn=5, psn=9)
    for header in headers:
        packet = packet / header.copy()
    return bytes(packet / Raw(PAYLOAD))


def layers_after_bth(packet):
    layer, found = packet[BTH].payload, []
    while layer.name not in ("NoPayload", "Raw", "Padding"):
        found.append(layer)
        layer = layer.payload
    return found


@pytest.mark.parametrize(("opcode", "headers"), CARRIES, ids=[Opcode(opcode).name for opcode, _ in CARRIES])
def test_each_opcode_is_dissected_into_its_headers_and_no_more(opcode, headers):
    got = Ether(frame_of(opcode, headers))
    found = layers_after_bth(got)
    assert [type(layer) for layer in found] == [type(header) for header in headers], got.summary()
    for layer, header in zip(found, headers, strict=True):
        for name, value in header.fields.items():
            assert layer.getfieldval(name) == value, f"{layer.name}.{name}"
    assert bytes(got[Raw]) == PAYLOAD


@pytest.mark.parametrize(("opcode", "headers"), CARRIES, ids=[Opcode(opcode).name for opcode, _ in CARRIES])
def test_a_dissected_frame_is_rebuilt_byte_for_byte(opcode, headers):
    frame = frame_of(opcode, headers)
    dissected = Ether(frame)
    dissected.clear_cache()
    assert bytes(dissected) == frame


def test_every_opcode_of_ours_is_in_the_dissection_table_or_is_the_cnp():
    assert {int(opcode) for opcode in Opcode} == {opcode for opcode, _ in CARRIES} | {0x81}


@pytest.mark.parametrize(
    ("header", "nbytes"),
    [(RETH, 16), (ImmDt, 4), (DETH, 8), (AtomicETH, 28), (AtomicAckETH, 8), (IETH, 4), (AETH, 4), (CNPPadding, 16)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_header_has_the_size_of_the_standard(header, nbytes):
    assert len(bytes(header())) == nbytes


def test_reth_bytes_are_address_key_length_in_network_order():
    assert bytes(RETH_X).hex() == "00007f0000001000" + "deadbeef" + "00001000"


def test_our_opcode_numbers_agree_with_scapy_where_scapy_has_them():
    theirs = {number: name for number, name in roce._bth_opcodes.items() if name[:2] in ("RC", "UD", "CN")}
    ours = {int(opcode): opcode.name for opcode in Opcode}
    assert {number: ours.get(number) for number in theirs} == theirs
    assert set(ours) - set(theirs) == {0x16, 0x17}


def test_scapy_prints_the_invalidating_send_by_name():
    assert BTH(opcode=0x17).sprintf("%BTH.opcode%") == "RC_SEND_ONLY_WITH_INVALIDATE"


def test_code_that_asks_for_scapys_own_aeth_finds_it():
    ack = Ether(frame_of(0x11, [AETH_X]))
    assert roce.AETH in ack
    assert ack[roce.AETH].msn == 0xABCDEF


def test_extension_header_without_a_bth_below_is_followed_by_raw_bytes():
    assert type(RETH(bytes(RETH_X) + b"rest").payload) is Raw


@pytest.mark.parametrize(("payload_bytes", "pad"), [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (1023, 1), (1024, 0)])
def test_pad_fills_up_to_a_multiple_of_four(payload_bytes, pad):
    assert padcount(payload_bytes) == pad


def modules_after(statement):
    code = f"import sys; {statement}; print(*sorted(m for m in sys.modules if m.startswith('scapy')))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_receiving_side_does_not_load_scapy():
    assert modules_after("import emu.roce, emu.roce.icrc, emu.roce.psn, emu.roce.place, emu.roce.flow") == []


def test_the_builders_load_only_the_parts_of_scapy_they_need():
    loaded = modules_after("import emu.roce.packets")
    assert "scapy.contrib.roce" in loaded
    assert "scapy.all" not in loaded
