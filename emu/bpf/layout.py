"""The maps' layout, read from the BTF of the compiled object, so that maps.h is the only description of it.

Source: kernel Documentation/bpf/btf.rst; libbpf's convention that a map is a struct in section .maps whose members
`key` and `value` are pointers to the types.
"""

from __future__ import annotations

import json
import struct
from collections import namedtuple
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from emu.bpf import tools
from emu.errors import FabricError, UsageError, unknown

UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
ALIASES = {"TYPEDEF", "CONST", "VOLATILE"}


@dataclass(frozen=True)
class Field:
    """One member: an unsigned integer of `width` bytes, or an array of `count` of them."""

    name: str
    offset: int
    width: int
    count: int | None = None

    @property
    def size(self) -> int:
        return self.width * (self.count or 1)


@dataclass(frozen=True)
class Layout:
    """A C structure; `pack` and `unpack` translate between keyword values and its bytes."""

    name: str
    size: int
    fields: tuple[Field, ...]

    @cached_property
    def packer(self) -> struct.Struct:
        return struct.Struct("=" + "".join(self._formats()))

    @cached_property
    def record(self) -> type:
        return namedtuple(self.name, [field.name for field in self.fields])

    def pack(self, **values: Any) -> bytes:
        """Bytes of the structure; a field not named is 0. UsageError: no such field, or a value it can't hold."""
        if not values:
            return bytes(self.size)
        if strangers := values.keys() - {field.name for field in self.fields}:
            raise unknown(f"field of {self.name}", strangers.pop(), [field.name for field in self.fields])
        return self.packer.pack(*(item for field in self.fields for item in self._items(field, values.get(field.name))))

    def unpack(self, data: bytes) -> Any:
        """A named tuple with the structure's fields; an array is a tuple in it."""
        items = self.packer.unpack(data)
        values, at = [], 0
        for field in self.fields:
            values.append(items[at] if field.count is None else items[at : at + field.count])
            at += field.count or 1
        return self.record(*values)

    def _formats(self) -> Iterator[str]:
        end = 0
        for field in self.fields:
            yield f"{field.offset - end}x{field.count or 1}{UNSIGNED[field.width]}"
            end = field.offset + field.size
        yield f"{self.size - end}x"

    def _items(self, field: Field, value: Any) -> list[int]:
        items = [0] * (field.count or 1) if value is None else [value] if field.count is None else list(value)
        if len(items) != (field.count or 1):
            raise UsageError(f"{self.name}.{field.name} has {len(items)} items; want {field.count}")
        most = (1 << 8 * field.width) - 1
        for item in items:
            if not 0 <= item <= most:
                raise UsageError(f"{self.name}.{field.name}={item} does not fit; want 0 to {most}")
        return items


@dataclass(frozen=True)
class MapLayout:
    """Key (an unsigned integer) and value of one map."""

    name: str
    key_size: int
    value: Layout

    def pack_key(self, key: int) -> bytes:
        return struct.pack("=" + UNSIGNED[self.key_size], key)

    def unpack_keys(self, data: bytes) -> Iterable[int]:
        return (key for (key,) in struct.iter_unpack("=" + UNSIGNED[self.key_size], data))


def read_maps(object_file: Path) -> dict[str, MapLayout]:
    """Every map of a compiled object that has typed entries, by name."""
    types = read_btf(object_file)
    section = [entry for entry in types.values() if entry["kind"] == "DATASEC" and entry["name"] == ".maps"]
    variables = [types[var["type_id"]] for entry in section for var in entry["vars"]]
    return {variable["name"]: _map_layout(types, variable) for variable in variables if _has_values(types, variable)}


def read_btf(object_file: Path) -> dict[int, dict]:
    """Every BTF type of a compiled object, by id, as bpftool describes it."""
    dump = tools.run("bpftool", "btf", "dump", "file", str(object_file), "--json")
    try:
        return {entry["id"]: entry for entry in json.loads(dump.stdout)["types"]}
    except (ValueError, KeyError):
        raise FabricError(f"{object_file} has no BTF ({dump.stderr.strip()}); build it anew: ./lab setup") from None


def _has_values(types: dict[int, dict], variable: dict) -> bool:
    """Not so of a ring buffer."""
    return any(member["name"] == "value" for member in types[variable["type_id"]]["members"])


def _map_layout(types: dict[int, dict], variable: dict) -> MapLayout:
    members = {member["name"]: member["type_id"] for member in types[variable["type_id"]]["members"]}
    key, value = (_resolved(types, types[members[role]]["type_id"]) for role in ("key", "value"))
    return MapLayout(name=variable["name"], key_size=key["size"], value=_layout(types, value))


def _layout(types: dict[int, dict], structure: dict) -> Layout:
    fields = tuple(_field(types, structure["name"], member) for member in structure["members"])
    return Layout(name=structure["name"], size=structure["size"], fields=fields)


def _field(types: dict[int, dict], structure: str, member: dict) -> Field:
    kind, count = _resolved(types, member["type_id"]), None
    if kind["kind"] == "ARRAY":
        kind, count = _resolved(types, kind["type_id"]), kind["nr_elems"]
    if kind["kind"] != "INT" or kind["encoding"] == "SIGNED" or member["bits_offset"] % 8:
        raise FabricError(f"{structure}.{member['name']} in maps.h is no unsigned integer, nor an array of them")
    return Field(name=member["name"], offset=member["bits_offset"] // 8, width=kind["size"], count=count)


def _resolved(types: dict[int, dict], type_id: int) -> dict:
    """The type behind typedefs and qualifiers."""
    entry = types[type_id]
    while entry["kind"] in ALIASES:
        entry = types[entry["type_id"]]
    return entry
