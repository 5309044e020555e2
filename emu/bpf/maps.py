"""A live BPF map with typed values: keyed by ifindex, laid out as maps.h says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from emu.bpf import syscall
from emu.bpf.layout import MapLayout
from emu.errors import FabricError


class Map:
    """One pinned map, held open; values go in as keywords and come out as named tuples."""

    def __init__(self, pin: Path, layout: MapLayout) -> None:
        """FabricError if the kernel's key or value size differs from the header's."""
        self.layout = layout
        self.fd = syscall.open_pin(pin)
        kernel, header = syscall.map_sizes(self.fd), (layout.key_size, layout.value.size)
        if kernel != header:
            self.close()
            raise FabricError(f"BPF map {layout.name}: kernel has key, value of {kernel} bytes, maps.h says {header}")

    def update(self, key: int, **fields: int | list[int]) -> None:
        """Set the whole value of `key`; a field not named becomes 0. UsageError: no such field, or no room in it."""
        value = self.layout.value.pack(**fields)
        try:
            syscall.map_update(self.fd, self.layout.pack_key(key), value)
        except OSError as error:
            raise FabricError(f"BPF map {self.layout.name}: can't set entry {key}: {error.strerror}") from None

    def read(self, key: int) -> Any | None:
        """The value of `key` as a named tuple, or None."""
        value = syscall.map_lookup(self.fd, self.layout.pack_key(key), self.layout.value.size)
        return None if value is None else self.layout.value.unpack(value)

    def read_all(self) -> dict[int, Any]:
        """Every key with its value. Keys appear in no order; each value is read whole, not all at one instant."""
        size = self.layout.value.size
        found = {}
        for keys, values in syscall.map_lookup_all(self.fd, self.layout.key_size, size):
            for at, key in enumerate(self.layout.unpack_keys(keys)):
                found[key] = self.layout.value.unpack(values[at * size : (at + 1) * size])
        return found

    def close(self) -> None:
        os.close(self.fd)
