"""Other tools' text files, word by word: what is read knows its line, and what can't be read is refused with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from emu.errors import UsageError

DIGITS = re.compile(r"[0-9]{1,18}")  # more would not fit the 64-bit integers of the tools that read these files
SHOWN = 40  # characters of a wrong word


@dataclass(frozen=True)
class Line:
    """A line that is neither empty nor a comment. `where` is file:line."""

    where: str
    words: tuple[str, ...]

    def refused(self, wrong: str) -> UsageError:
        """UsageError for this line; `wrong` says what is wrong and what would be right."""
        return UsageError(f"{self.where}: {wrong}")

    def whole(self, name: str, word: str, at_least: int = 0) -> int:
        """A whole number; UsageError names it and its line."""
        if not DIGITS.fullmatch(word) or int(word) < at_least:
            raise self.refused(f"{name} is {shown(word)}; want a whole number, at least {at_least}")
        return int(word)


def read_lines(path: str, what: str, comment: str | None = None) -> Iterator[Line]:
    """The lines of a text file; `what` says what the file should be. UsageError: no such file, no text in it."""
    for number, text in enumerate(read_text(path, what).split("\n"), start=1):
        words = tuple(text.split())
        if words and not (comment and words[0].startswith(comment)):
            yield Line(f"{path}:{number}", words)


def read_text(path: str, what: str) -> str:
    try:
        return read_bytes(path, what).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: no text (byte {error.start} is no UTF-8); want {what}") from None


def read_bytes(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; want {what}") from None
    except ValueError as error:  # a NUL in it
        raise UsageError(f"{path!r} is no path ({error}); want {what}") from None


def shown(word: str) -> str:
    """A word of a file as a message shows it: quoted, and cut where it is long."""
    return repr(word if len(word) <= SHOWN else f"{word[:SHOWN]}…")
