"""The initial RAM file system: busybox, the modules that reach the host's files, and init.sh.

Debian's kernel has virtio, 9p and overlayfs as modules, so it cannot mount the host's tree by itself.
Source: Documentation/driver-api/early-userspace/buffer-format.rst (cpio "newc").
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

from package import Unpacked

INIT = Path(__file__).with_name("init.sh")
WANTED = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
FOLDER, PROGRAM, FILE = 0o040755, 0o100755, 0o100644  # mode with file type, inode(7)
CPIO_END = "TRAILER!!!"


def image(kernel: Unpacked) -> bytes:
    """The archive; a few MB, not compressed."""
    modules = load_order(kernel.modules, WANTED)
    members = [
        *((folder, FOLDER, b"") for folder in ("bin", "modules", "dev", "proc", "sys", "host", "memory", "root")),
        ("bin/busybox", PROGRAM, kernel.busybox.read_bytes()),
        ("init", PROGRAM, INIT.read_bytes()),
        ("modules/order", FILE, "\n".join(path.name.removesuffix(".xz") for path in modules).encode() + b"\n"),
        *((f"modules/{path.name.removesuffix('.xz')}", FILE, module(path)) for path in modules),
        (CPIO_END, 0, b""),
    ]
    return b"".join(member(number, *each) for number, each in enumerate(members, start=1))


def load_order(modules: Path, wanted: tuple[str, ...]) -> list[Path]:
    """Files of the wanted modules, each after those it needs; what is built in has none."""
    needs = dict(line.split(":") for line in (modules / "modules.dep").read_text().splitlines())
    files = {Path(path).name.partition(".")[0]: path for path in needs}
    ordered: dict[str, None] = {}
    for name in wanted:
        if name in files:
            ordered |= dict.fromkeys(reversed(needs[files[name]].split()))  # modules.dep lists the deepest need last
            ordered[files[name]] = None
    return [modules / path for path in ordered]


def module(path: Path) -> bytes:
    """A module as the kernel takes it; Debian 13 ships them compressed."""
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def member(number: int, name: str, mode: int, content: bytes) -> bytes:
    """One file: 13 fields of 8 hex digits, the name, the content, each part padded to 4 bytes."""
    links, size, name_size = 1, len(content), len(name) + 1
    fields = (number, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return b"".join(padded([head, content]))


def padded(parts: list[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield part + bytes(-len(part) % 4)
