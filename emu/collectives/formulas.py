"""Bandwidths exactly as nccl-tests prints them, so that a figure of ours can be laid beside one of a real cluster.

busbw asks how fast the slowest link would have to be if the algorithm were the best possible one: its factor belongs to
the collective, never to the algorithm (a tree's busbw has the ring's factor). The size of a collective is nccl-tests' too:

    all_reduce, broadcast, reduce, send_recv                     bytes of one rank's buffer
    reduce_scatter, all_gather, all_to_all, gather, scatter      bytes of all n blocks together
    hypercube                                                    bytes of the n - 1 blocks that a rank receives

Source: nccl-tests, the GetBw function in each src/*.cu; doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Callable

from emu.errors import UsageError, unknown

GB = 1e9  # nccl-tests divides by 1.0E9


def _twice_all_but_own(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _all_but_own(ranks: int) -> float:
    return (ranks - 1) / ranks


def _whole(ranks: int) -> float:
    return 1.0


FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": _twice_all_but_own,
    "reduce_scatter": _all_but_own,
    "all_gather": _all_but_own,
    "all_to_all": _all_but_own,
    "gather": _all_but_own,
    "scatter": _all_but_own,
    "broadcast": _whole,
    "reduce": _whole,
    "send_recv": _whole,
    "hypercube": _whole,
}


def bus_factor(collective: str, ranks: int) -> float:
    """What algbw is multiplied by to give busbw. UsageError: a collective that nccl-tests doesn't have, no rank."""
    if collective not in FACTORS:
        raise unknown("collective", collective, FACTORS)
    if ranks < 1:
        raise UsageError(f"{collective} over {ranks} ranks; want at least 1")
    return FACTORS[collective](ranks)


def algbw_gbyte_per_s(size_bytes: int, elapsed_s: float) -> float:
    """Algorithm bandwidth: size over time, in units of 10^9 bytes/s. UsageError: no time has passed."""
    if elapsed_s <= 0:
        raise UsageError(f"a collective took {elapsed_s} s; want more than 0")
    return size_bytes / GB / elapsed_s


def busbw_gbyte_per_s(collective: str, ranks: int, size_bytes: int, elapsed_s: float) -> float:
    """Bus bandwidth: algbw times the collective's factor, in units of 10^9 bytes/s."""
    return algbw_gbyte_per_s(size_bytes, elapsed_s) * bus_factor(collective, ranks)
