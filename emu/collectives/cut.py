"""Cutting a buffer so that no byte is lost or sent twice, whatever the size."""

from __future__ import annotations

from emu.errors import UsageError


def cut(size_bytes: int, parts: int) -> list[int]:
    """`parts` sizes that sum to `size_bytes` and differ by one byte at most, the longer ones first.

    NCCL cuts at elements and has as many of them for every rank; here the remainder is spread.
    """
    share, longer = divmod(size_bytes, parts)
    return [share + 1] * longer + [share] * (parts - longer)


def portions(size_bytes: int, limit_bytes: int) -> list[int]:
    """Full portions of `limit_bytes`, then what is left, as NCCL goes round its loops."""
    full, rest = divmod(size_bytes, limit_bytes)
    return [limit_bytes] * full + [rest] * (rest > 0)


def need_at_least_one(**values: int) -> None:
    """UsageError for the first that is below 1."""
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"{name}={value}; want at least 1")
