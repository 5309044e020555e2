"""Frames of the crafted NIC: RC WRITE packets that carry their own address, ACK, NAK and CNP.

Spraying delivers packets in any order, so each is a WRITE_ONLY whose RETH holds the packet's own address, while DMALen
is the length of the whole message (as in MRC 1.0: RETH on every packet). The receiver places it without the others.

Scapy takes over a millisecond per packet, so it builds one template per payload length; the other packets differ in
address, PSN, identification, checksum, payload and iCRC, which are patched at the offsets that Scapy's own layout
gives. tests/unit/test_roce_packets.py compares every patched frame with a full Scapy build, byte for byte.
"""

from __future__ import annotations

from functools import lru_cache

from scapy.fields import Field
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

from emu.errors import UsageError
from emu.roce.flow import Flow, check_range
from emu.roce.headers import AETH, BTH, RETH, CNPPadding, padcount
from emu.roce.icrc import icrc
from emu.roce.opcodes import CREDITS_UNLIMITED, NAK_SYNDROME, NakCode, Opcode
from emu.roce.psn import PSN_MODULUS, packets_of_message, psn_add
from emu.roce.wire import ETHERNET_BYTES, ICRC_BYTES, ROCE_UDP_PORT

MESSAGE_MAX_BYTES = 1 << 31  # longest RDMA message, IBTA vol 1 section 9.7, by memory
ADDRESS_SPACE_BYTES = 1 << 64
IP_ID_MODULUS = 1 << 16
CNP_TOS = 48 << 2 | 0b10  # as captured from a ConnectX-4 Lx, which also sends from UDP port 0
CNP_UDP_SPORT = 0
TEMPLATES_KEPT = 4096  # at most a frame each; what a collective of some ten ranks sends again and again


def roce_frame(
    flow: Flow, bth: Packet, payload: bytes = b"", *, tos: int | None = None, sport: int | None = None, ip_id: int = 0
) -> bytes:
    """One frame of any opcode, iCRC included: bth is a BTH with its extension headers. DestQP and pad are filled in."""
    check_range("psn", bth[BTH].psn, PSN_MODULUS)
    bth = bth.copy()
    bth[BTH].dqpn = flow.dst_qpn
    bth[BTH].padcount = padcount(len(payload))
    padded = payload + bytes(padcount(len(payload)))
    udp = UDP(sport=flow.sport if sport is None else sport, dport=ROCE_UDP_PORT, chksum=0)
    frame = _ethernet_ip(flow, flow.tos if tos is None else tos, ip_id) / udp / bth
    return bytes(frame / Raw(padded) if padded else frame)


def _ethernet_ip(flow: Flow, tos: int, ip_id: int) -> Packet:
    ethernet = Ether(src=flow.src_mac, dst=flow.dst_mac)
    if flow.ipv6:
        return ethernet / IPv6(src=flow.src_ip, dst=flow.dst_ip, tc=tos, hlim=flow.ttl)
    return ethernet / IP(src=flow.src_ip, dst=flow.dst_ip, tos=tos, ttl=flow.ttl, flags="DF", id=ip_id)


def write_packet(
    flow: Flow, *, va: int, payload: bytes, psn: int, message_bytes: int, ack_req: bool = False, ip_id: int = 0
) -> bytes:
    """One RC WRITE_ONLY that says itself where its payload belongs; message_bytes is the whole message's length."""
    _check_placeable(va, message_bytes)
    bth = BTH(opcode=int(Opcode.RC_RDMA_WRITE_ONLY), psn=psn, ackreq=int(ack_req))
    return roce_frame(flow, bth / RETH(va=va, rkey=flow.rkey, dmalen=message_bytes), payload, ip_id=ip_id)


def ack(flow: Flow, *, psn: int, msn: int, credits: int = CREDITS_UNLIMITED) -> bytes:
    """Acknowledges all packets of `flow` up to psn; the frame goes back to the flow's sender."""
    check_range("credits", credits, CREDITS_UNLIMITED + 1)
    return _answer(flow, psn=psn, syndrome=credits, msn=msn)


def nak(flow: Flow, *, psn: int, msn: int, code: NakCode = NakCode.PSN_SEQUENCE_ERROR) -> bytes:
    """Refuses: psn is the one that the receiver of `flow` expects next; the frame goes back to the flow's sender."""
    return _answer(flow, psn=psn, syndrome=NAK_SYNDROME | code, msn=msn)


def _answer(flow: Flow, *, psn: int, syndrome: int, msn: int) -> bytes:
    check_range("msn", msn, 1 << 24)
    bth = BTH(opcode=int(Opcode.RC_ACKNOWLEDGE), psn=psn)
    return roce_frame(flow.reverse(), bth / AETH(syndrome=syndrome, msn=msn))


def cnp(flow: Flow, *, ip_id: int = 0) -> bytes:
    """Congestion notification to the sender of `flow`: DestQP is the queue pair that has to slow down."""
    bth = BTH(opcode=int(Opcode.CNP), becn=1)
    return roce_frame(flow.reverse(), bth / CNPPadding(), tos=CNP_TOS, sport=CNP_UDP_SPORT, ip_id=ip_id)


def write_frames(
    flow: Flow, *, va: int, payload: bytes | int, path_mtu: int, first_psn: int = 0, first_ip_id: int = 0
) -> list[bytes]:
    """A whole message as frames in PSN order, each with its own address; the last one asks for an ACK.

    payload: the bytes, or a size in bytes for zeros. PSN and IP identification count up and wrap.
    """
    check_range("first_psn", first_psn, PSN_MODULUS)
    data = _message_bytes(payload, va)
    last = packets_of_message(len(data), path_mtu) - 1
    full_size = _template(flow, path_mtu, len(data), ack_req=False) if last else None
    last_one = _template(flow, len(data) - last * path_mtu, len(data), ack_req=True)
    frames = []
    for index in range(last + 1):
        template = full_size if index < last else last_one
        offset = index * path_mtu
        frames.append(
            template.frame(
                va=va + offset,
                psn=psn_add(first_psn, index),
                ip_id=(first_ip_id + index) % IP_ID_MODULUS,
                payload=data[offset : offset + path_mtu],
            )
        )
    return frames


def _message_bytes(payload: bytes | int, va: int) -> memoryview:
    _check_placeable(va, payload if isinstance(payload, int) else len(payload))
    return memoryview(bytes(payload))


def _check_placeable(va: int, size_bytes: int) -> None:
    if not 0 <= size_bytes <= MESSAGE_MAX_BYTES:
        raise UsageError(f"message of {size_bytes} bytes: RDMA allows 0 to {MESSAGE_MAX_BYTES}")
    if not 0 <= va < ADDRESS_SPACE_BYTES or va + size_bytes > ADDRESS_SPACE_BYTES:
        raise UsageError(f"message of {size_bytes} bytes at {va:#x} leaves the 64-bit address space")


class _WriteTemplate:
    """A WRITE packet of one payload length, built by Scapy once and patched for every further packet."""

    def __init__(self, flow: Flow, payload_bytes: int, message_bytes: int, *, ack_req: bool) -> None:
        self._frame = write_packet(
            flow, va=0, payload=bytes(payload_bytes), psn=0, message_bytes=message_bytes, ack_req=ack_req
        )
        layout = Ether(self._frame)
        self._va = field_span(layout, RETH, "va")
        self._psn = field_span(layout, BTH, "psn")
        payload_start = layer_offset(layout, RETH) + len(RETH())
        self._payload = slice(payload_start, payload_start + payload_bytes)
        self._has_ip_id = not flow.ipv6
        if self._has_ip_id:
            self._ip_header = slice(layer_offset(layout, IP), layer_offset(layout, UDP))
            self._ip_id = field_span(layout, IP, "id")
            self._ip_checksum = field_span(layout, IP, "chksum")

    def frame(self, *, va: int, psn: int, ip_id: int, payload: bytes | memoryview) -> bytes:
        frame = bytearray(self._frame)
        frame[self._va] = va.to_bytes(8, "big")
        frame[self._psn] = psn.to_bytes(3, "big")
        frame[self._payload] = payload
        if self._has_ip_id:
            self._patch_ip_id(frame, ip_id)
        frame[-ICRC_BYTES:] = icrc(frame[ETHERNET_BYTES:])
        return bytes(frame)

    def _patch_ip_id(self, frame: bytearray, ip_id: int) -> None:
        frame[self._ip_id] = ip_id.to_bytes(2, "big")
        frame[self._ip_checksum] = b"\0\0"
        frame[self._ip_checksum] = checksum(bytes(frame[self._ip_header])).to_bytes(2, "big")


@lru_cache(maxsize=TEMPLATES_KEPT)
def _template(flow: Flow, payload_bytes: int, message_bytes: int, *, ack_req: bool) -> _WriteTemplate:
    return _WriteTemplate(flow, payload_bytes, message_bytes, ack_req=ack_req)


def layer_offset(frame: Packet, layer: type[Packet]) -> int:
    """Byte at which a layer begins in a dissected frame."""
    offset = 0
    while not isinstance(frame, layer):
        # Scapy cuts the iCRC off the end of BTH's payload.
        trailer_bytes = ICRC_BYTES if isinstance(frame, BTH) else 0
        offset += len(frame.original) - len(frame.payload.original) - trailer_bytes
        frame = frame.payload
    return offset


def field_span(frame: Packet, layer: type[Packet], name: str) -> slice:
    """Bytes that a whole-byte field of a layer takes in a dissected frame."""
    before: list[Field] = []
    for field in layer.fields_desc:
        if field.name == name:
            start = layer_offset(frame, layer) + int(sum(earlier.sz for earlier in before))
            return slice(start, start + int(field.sz))
        before.append(field)
    raise UsageError(f"{layer.__name__} has no field {name!r}")
