"""The marker's settings for one port, in the units of maps.h."""

from __future__ import annotations

from emu.bpf.loader import Loaded
from emu.errors import UsageError

OBJECT = PROGRAM = "marker"
PROBABILITY_UNITS = 1 << 32


def set_port(
    marker: Loaded, ifindex: int, *, kmin_bytes: int, kmax_bytes: int, pmax: float, seed: int, bucket_bytes: int
) -> None:
    """Give a port its law and counters at 0; until then the marker leaves it alone.

    `pmax` is a share of 0 to 1; `seed` (64 bits) decides every draw of the port; `bucket_bytes` is the width of one of
    the 64 depth buckets, the last of which has no upper end. UsageError for a value that the map can't hold.
    """
    marker.map("port_counters").update(ifindex)
    marker.map("port_depth").update(ifindex)
    marker.map("port_config").update(
        ifindex,
        kmin_bytes=kmin_bytes,
        kmax_bytes=kmax_bytes,
        pmax=probability_units(pmax),
        rng_state=seed,
        bucket_bytes=bucket_bytes,
    )


def probability_units(share: float) -> int:
    """A share of 0 to 1 in units of 2^-32; 1 itself becomes 1 - 2^-32, the most that 32 bits hold."""
    if not 0 <= share <= 1:
        raise UsageError(f"pmax={share:g} is not a marking probability; want 0 to 1")
    return min(round(share * PROBABILITY_UNITS), PROBABILITY_UNITS - 1)
