"""The marker's settings for one port, in the units of maps.h."""

from __future__ import annotations

from emu.bpf.loader import Loaded

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
        pmax=min(round(pmax * PROBABILITY_UNITS), PROBABILITY_UNITS - 1),
        rng_state=seed,
        bucket_bytes=bucket_bytes,
    )
