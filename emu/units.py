"""Constructors that turn the field's units into ours at the edge: bits per second, bytes, nanoseconds, all integers."""

from __future__ import annotations


def gbps(rate: float) -> int:
    """Gb/s (10^9 bit/s, as on a switch's data sheet) to bit/s."""
    return round(rate * 1_000_000_000)


def mbps(rate: float) -> int:
    """Mb/s (10^6 bit/s) to bit/s."""
    return round(rate * 1_000_000)


def us(time: float) -> int:
    """Microseconds to nanoseconds."""
    return round(time * 1_000)


def ms(time: float) -> int:
    """Milliseconds to nanoseconds."""
    return round(time * 1_000_000)


def mib(size: float) -> int:
    """MiB (2^20) to bytes."""
    return round(size * (1 << 20))
