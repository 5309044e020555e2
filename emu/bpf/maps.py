"""A live BPF map with typed values: keyed by ifindex, laid out as maps.h says."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

from emu.bpf import syscall
from emu.bpf.layout import UNSIGNED, MapLayout
from emu.errors import FabricError, UsageError


class Map:
    """One pinned map, held open; values go in as keywords and come out as named tuples."""

    def __init__(self, pin: Path, layout: MapLayout) -> None:
        """FabricError if the kernel's key or value size differs from the header's."""
        self.layout = layout
        self.fd = syscall.open_pin(pin)
        self._memory: mmap.mmap | None = None
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

    def clear(self) -> None:
        """Remove every entry of a hash map."""
        for key in self.read_all():
            syscall.map_delete(self.fd, self.layout.pack_key(key))

    def memory(self) -> mmap.mmap:
        """All values of an array map, one after the other, as the kernel has them: reads and writes are the map's."""
        if self._memory is None:
            if self.layout.value.size % 8:
                raise FabricError(f"BPF map {self.layout.name}: values of {self.layout.value.size} bytes are padded in memory")
            size = self.layout.value.size * syscall.map_entries(self.fd)
            self._memory = mmap.mmap(self.fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        return self._memory

    def write_from(self, first: int, values: bytes | bytearray) -> None:
        """Packed values from key `first` on, into the memory of an array map; UsageError if there are more than it holds."""
        room = syscall.map_entries(self.fd) - first
        if len(values) > room * self.layout.value.size:
            wanted = len(values) // self.layout.value.size
            raise UsageError(f"BPF map {self.layout.name}: {wanted} entries from {first} on; it has room for {room}")
        start = first * self.layout.value.size
        self.memory()[start : start + len(values)] = values

    def read_range(self, first: int, count: int) -> list[Any]:
        """Values of `count` keys from `first` on, out of the memory of an array map."""
        size = self.layout.value.size
        data = self.memory()[first * size : (first + count) * size]
        return [self.layout.value.unpack(data[at : at + size]) for at in range(0, len(data), size)]

    def read_field(self, name: str, first: int, count: int) -> list[int]:
        """One integer field of `count` values from key `first` on: cheaper than all of them."""
        field = next(field for field in self.layout.value.fields if field.name == name)
        size = self.layout.value.size
        with memoryview(self.memory()) as memory, memory[first * size : (first + count) * size] as data:
            if size % field.width or field.offset % field.width:
                reader = struct.Struct("=" + UNSIGNED[field.width])
                return [reader.unpack_from(data, at)[0] for at in range(field.offset, len(data), size)]
            with data.cast(UNSIGNED[field.width]) as words:
                return words[field.offset // field.width :: size // field.width].tolist()

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        os.close(self.fd)
