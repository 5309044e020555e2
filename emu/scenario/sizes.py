"""Sizes as people write them: 64k and 10MB are powers of ten, 4Ki and 4MiB are powers of two (IEC 80000-13).

A suffix that means either (64K, 10m) is refused: munet reads 100k as 102,400 and 100M as 100,000,000.
"""

from __future__ import annotations

import re
from fractions import Fraction

DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
PREFIXES = {"": 1} | DECIMAL | BINARY
SUFFIXES = PREFIXES | {f"{prefix}B": factor for prefix, factor in PREFIXES.items()}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_bytes(text: str) -> int:
    """'64k' -> 64000, '4MiB' -> 4194304; ValueError with what would be right."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a size; write bytes, or with a suffix as 64k, 10MB, 4Ki or 4MiB")
    number, suffix = match.groups()
    if suffix not in SUFFIXES:
        raise ValueError(_what_would_fit(number, suffix))
    size_bytes = Fraction(number) * SUFFIXES[suffix]
    if size_bytes.denominator != 1:
        raise ValueError("is not a whole number of bytes")
    return int(size_bytes)


def as_text(size_bytes: object) -> str:
    """'64 MiB': bytes in the largest power of two that leaves a whole number, for tables."""
    unit = next((name for name in ("Gi", "Mi", "Ki") if not int(size_bytes) % BINARY[name]), "")
    return f"{int(size_bytes) // PREFIXES[unit]} {unit}B"


def _what_would_fit(number: str, suffix: str) -> str:
    prefix = {"K": "k", "m": "M", "g": "G"}.get(suffix.removesuffix("B"))
    if prefix is None:
        return f"has the unknown suffix {suffix!r}; allowed: {' '.join(filter(None, SUFFIXES))}"
    binary = f"{prefix.upper()}i"
    return (
        f"is ambiguous; write {number}{prefix} ({float(number) * DECIMAL[prefix]:,.0f} bytes) "
        f"or {number}{binary} ({float(number) * BINARY[binary]:,.0f} bytes)"
    )
