"""Follow a growing file: the guest's output on its way to whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 16


class Tail:
    """Copies what was added to `path` since the last look to `to`, and remembers the last line."""

    def __init__(self, path: Path, to: BinaryIO) -> None:
        self._path = path
        self._to = to
        self._copied_bytes = 0
        self._end = b""

    def copy_new(self) -> None:
        """Everything new, flushed."""
        if not self._path.exists() or self._path.stat().st_size == self._copied_bytes:
            return
        with open(self._path, "rb") as file:
            file.seek(self._copied_bytes)
            while chunk := file.read(CHUNK_BYTES):
                self._to.write(chunk)
                self._copied_bytes += len(chunk)
                self._end = (self._end + chunk)[-CHUNK_BYTES:]
        self._to.flush()

    def last_line(self) -> str:
        """The last line with any text in it, "" if there was none."""
        lines = [line for line in self._end.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""
