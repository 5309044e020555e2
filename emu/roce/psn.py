"""Packet sequence numbers on their 24-bit circle, packets of a message, and the path MTU an interface can carry.

Sources: IBTA Architecture Specification vol 1 section 9.7 (by memory); Linux drivers/infiniband/sw/rxe
(`psn_compare`); Linux include/rdma/ib_addr.h `iboe_get_mtu`.
"""

from __future__ import annotations

from emu.errors import UsageError

PSN_MODULUS = 1 << 24
PATH_MTUS_BYTES = (256, 512, 1024, 2048, 4096)

# Room that Linux keeps beside the payload (iboe_get_mtu): GRH or IPv6 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4.
HEADER_ROOM_BYTES = 40 + 8 + 12 + 4 + 28 + 4


def psn_add(psn: int, packets: int) -> int:
    """The PSN `packets` later; negative counts go back."""
    return (psn + packets) % PSN_MODULUS


def psn_distance(start: int, end: int) -> int:
    """Packets to go forward from start to end, 0 to 2^24 - 1."""
    return (end - start) % PSN_MODULUS


def psn_after(a: int, b: int) -> bool:
    """a is later than b: less than half the circle ahead. At exactly half, neither is later."""
    return 0 < psn_distance(b, a) < PSN_MODULUS // 2


def check_path_mtu(path_mtu: int) -> int:
    """The path MTU in bytes, unchanged; UsageError if InfiniBand has no such size."""
    if path_mtu not in PATH_MTUS_BYTES:
        raise UsageError(f"path MTU {path_mtu!r} does not exist; InfiniBand has {', '.join(map(str, PATH_MTUS_BYTES))}")
    return path_mtu


def packets_of_message(nbytes: int, path_mtu: int) -> int:
    """Packets (and PSNs) a WRITE of nbytes takes; an empty message still takes one."""
    if nbytes < 0:
        raise UsageError(f"message of {nbytes} bytes: a length is 0 or more")
    return max(1, -(-nbytes // check_path_mtu(path_mtu)))


def path_mtu_for(interface_mtu: int) -> int:
    """Largest path MTU in bytes that fits an interface MTU (IP packet, without Ethernet), as Linux chooses it."""
    fitting = [mtu for mtu in PATH_MTUS_BYTES if mtu + HEADER_ROOM_BYTES <= interface_mtu]
    if not fitting:
        raise UsageError(
            f"interface MTU {interface_mtu} is too small for RoCE: the smallest path MTU {PATH_MTUS_BYTES[0]} "
            f"needs {PATH_MTUS_BYTES[0] + HEADER_ROOM_BYTES} with its headers"
        )
    return fitting[-1]
