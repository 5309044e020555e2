"""The NIC's transport that a run asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scenario.choice import Values
from emu.units import us

if TYPE_CHECKING:
    from emu.nic.transport import Transport


def transport(p: Values) -> Transport:
    """From `transport`, `cc`, `window_packets`, `rto_us` and `icrc`; an ACK comes at least once a quarter of the window."""
    from emu.nic.transport import Transport

    return Transport(transport=p.transport, cc=p.cc, window_packets=p.window_packets, rto_ns=us(p.rto_us),
                     icrc=p.icrc == "on", ack_every=max(1, min(Transport.ack_every, p.window_packets // 4)))
