"""A change to the kernel's source, found by content.

By content, not by line number: the same edits fit every kernel version whose code reads the same, and a version
where they do not fit is refused by name instead of being built into a kernel that only looks right.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emu.errors import MissingFeature


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Replace `old`, which must occur exactly once in `file` (relative to the source tree), by `new`.

    superseded: text that a kernel which can do this by itself has in `file`; there nothing is changed.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    superseded: str = ""


def apply_patch(tree: Path, version: str, patch: Patch) -> None:
    """Replace the one occurrence of `patch.old`; a tree that already holds `patch.new` is refused too."""
    path = tree / patch.file
    text = path.read_text() if path.is_file() else ""
    if patch.superseded and patch.superseded in text:
        return
    if patch.new in text or text.count(patch.old) != 1:
        raise MissingFeature(f"Linux {version}: patch {patch.name} does not fit {patch.file} ({_misfit(text, patch)}); "
                             "install Debian's linux-source-6.1 or linux-source-6.12")
    path.write_text(text.replace(patch.old, patch.new))


def _misfit(text: str, patch: Patch) -> str:
    if not text:
        return "no such file"
    if patch.new in text:
        return "already applied"
    return f"its text occurs {text.count(patch.old)} times, 1 expected"
