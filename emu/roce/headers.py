"""Scapy layers that scapy.contrib.roce 2.8.0 lacks, bound to Scapy's own BTH by opcode.

Scapy chooses a payload by the fields of the layer below. Here the second extension header depends on the BTH opcode two
layers down, so `ExtensionHeader` looks it up in the one table of `opcodes`. The bindings serve dissection only: several
opcodes share a header, so a builder must name its opcode and Scapy's guess would be wrong.

Layouts: Linux drivers/infiniband/sw/rxe/rxe_hdr.h; IBTA Architecture Specification vol 1 section 9.3 (by memory).
"""

from __future__ import annotations

from scapy.contrib import roce
from scapy.contrib.roce import BTH, CNPPadding
from scapy.fields import IntField, XBitField, XByteField, XIntField, XLongField
from scapy.packet import Packet, bind_bottom_up, split_bottom_up

from emu.roce.opcodes import EXTENSION_HEADERS, Opcode

__all__ = ["AETH", "BTH", "DETH", "IETH", "RETH", "AtomicAckETH", "AtomicETH", "CNPPadding", "ImmDt", "padcount"]

PAYLOAD_ALIGN_BYTES = 4


def padcount(payload_bytes: int) -> int:
    """Bytes (0 to 3) that fill a payload up to a multiple of four; goes into BTH.padcount."""
    return -payload_bytes % PAYLOAD_ALIGN_BYTES


class ExtensionHeader(Packet):
    """A header between BTH and payload; what follows it is decided by the BTH opcode."""

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        following = _following_header(self)
        return LAYERS[following] if following else self.default_payload_class(payload)


def _following_header(header: Packet) -> str | None:
    bth = header.underlayer
    while bth is not None and not isinstance(bth, BTH):
        bth = bth.underlayer
    names = EXTENSION_HEADERS.get(bth.opcode, ()) if bth is not None else ()
    later = dict(zip(names, names[1:], strict=False))
    return later.get(type(header).__name__)


class RETH(ExtensionHeader):
    """RDMA extended transport header, 16 B: where to read or write, and the length of the whole message."""

    name = "RETH"
    fields_desc = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        IntField("dmalen", 0),
    ]


class ImmDt(ExtensionHeader):
    """Immediate data, 4 B, handed to the receiver's completion queue."""

    name = "ImmDt"
    fields_desc = [XIntField("data", 0)]


class DETH(ExtensionHeader):
    """Datagram extended transport header, 8 B: the key that guards the queue, and who sends."""

    name = "DETH"
    fields_desc = [
        XIntField("qkey", 0),
        XByteField("reserved", 0),
        XBitField("srcqp", 0, 24),
    ]


class AtomicETH(ExtensionHeader):
    """Atomic extended transport header, 28 B. FETCH_ADD puts the addend in `swap` and leaves `compare` unused."""

    name = "AtomicETH"
    fields_desc = [
        XLongField("va", 0),
        XIntField("rkey", 0),
        XLongField("swap", 0),
        XLongField("compare", 0),
    ]


class AtomicAckETH(ExtensionHeader):
    """Atomic acknowledge, 8 B after the AETH: the value that was in memory before."""

    name = "AtomicAckETH"
    fields_desc = [XLongField("original", 0)]


class IETH(ExtensionHeader):
    """Invalidate extended transport header, 4 B: the R_Key that the receiver retires with this SEND."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class AETH(roce.AETH, ExtensionHeader):
    """Scapy's AETH, which may also be followed by AtomicAckETH. Code that asks for Scapy's class still finds it."""

    name = "AETH"
    match_subclass = True


LAYERS: dict[str, type[Packet]] = {
    layer.__name__: layer for layer in (RETH, ImmDt, DETH, AtomicETH, AtomicAckETH, IETH, AETH)
}


def _bind_to_bth() -> None:
    split_bottom_up(BTH, roce.AETH, opcode=Opcode.RC_ACKNOWLEDGE)
    for opcode, names in EXTENSION_HEADERS.items():
        bind_bottom_up(BTH, LAYERS[names[0]], opcode=int(opcode))


def _name_opcodes() -> None:
    """Scapy prints the invalidating SENDs as bare numbers; give its enumeration their names."""
    field = next(field for field in BTH.fields_desc if field.name == "opcode")
    for opcode in Opcode:
        field.i2s.setdefault(int(opcode), opcode.name)
        field.s2i.setdefault(opcode.name, int(opcode))


_bind_to_bth()
_name_opcodes()
