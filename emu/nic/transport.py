"""What a NIC's transport is set to, in fabric time and nominal rates; the engine turns it into kernel terms.

DCQCN's constants are the paper's (Zhu et al., SIGCOMM 2015: g 1/256, timers 55 µs, CNP interval 50 µs, F 5) with the
steps of the rate in proportion to the line rate, as 40 Mb/s were at 40 Gb/s (domain facts 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import UsageError, unknown
from emu.units import us

TRANSPORTS, CONTROLS, PAYLOADS = ("gbn", "sr"), ("dcqcn", "none"), ("elided", "full")
WINDOW_MAX_PACKETS = 1024


@dataclass(frozen=True, kw_only=True)
class Dcqcn:
    """Times in fabric ns; rate steps as shares of the line rate."""

    cnp_interval_ns: int = us(50)
    alpha_period_ns: int = us(55)
    rise_period_ns: int = us(55)
    alpha_gain_shift: int = 8
    fast_recovery_steps: int = 5
    rise_additive: float = 1e-3
    rise_hyper: float = 1e-2
    rate_min: float = 1e-3
    rate_start: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Transport:
    """window_packets: in flight per queue pair. rto_ns: fabric time without progress after which a sender repairs.

    icrc: every frame carries its iCRC (without it 0), and the receiver drops one whose iCRC is wrong.
    """

    transport: str = "sr"
    cc: str = "none"
    window_packets: int = 256
    ack_every: int = 4
    reorder_packets: int = 128
    rto_ns: int = us(500)
    icrc: bool = False
    dcqcn: Dcqcn = Dcqcn()

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise unknown("transport", self.transport, TRANSPORTS)
        if self.cc not in CONTROLS:
            raise unknown("cc", self.cc, CONTROLS)
        if not 1 <= self.window_packets <= WINDOW_MAX_PACKETS:
            raise UsageError(f"window_packets={self.window_packets}; want 1 to {WINDOW_MAX_PACKETS}")
        if not 1 <= self.ack_every <= self.window_packets:
            raise UsageError(f"ack_every={self.ack_every}; want 1 to window_packets={self.window_packets}")
        if self.rto_ns < 1:
            raise UsageError(f"rto_ns={self.rto_ns}; want a time after which a loss is taken for granted")
