"""Rows of a table beside each other: what one choice changes where everything else is alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Row = Mapping[str, object]


def beside(rows: Sequence[Row], apart: Sequence[str], choice: str, base: object) -> Iterator[tuple[Row, Row]]:
    """(row with choice=base, row with another) wherever both have what is named in `apart` in common; in the others' order."""
    bases = {tuple(row[name] for name in apart): row for row in rows if row[choice] == base}
    for row in rows:
        key = tuple(row[name] for name in apart)
        if row[choice] != base and key in bases:
            yield bases[key], row
