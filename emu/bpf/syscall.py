"""bpf(2) for maps and pins: the few commands that Python needs, through libc's syscall().

Source: bpf(2); struct layouts of union bpf_attr in linux/bpf.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

from emu.errors import MissingFeature

NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}  # __NR_bpf
MAP_LOOKUP_ELEM, MAP_UPDATE_ELEM, MAP_DELETE_ELEM, OBJ_GET, OBJ_GET_INFO_BY_FD, MAP_LOOKUP_BATCH = 1, 2, 3, 7, 15, 24
ELEMENT = struct.Struct("=I4xQQQ")  # map_fd, key, value, flags
BATCH = struct.Struct("=QQQQIIQQ")  # in_batch, out_batch, keys, values, count, map_fd, elem_flags, flags
MAP_INFO = struct.Struct("=IIIII")  # type, id, key_size, value_size, max_entries: the head of struct bpf_map_info
BATCH_ENTRIES = 1024

_libc = ctypes.CDLL(None, use_errno=True)


def open_pin(path: Path) -> int:
    """File descriptor (close-on-exec) of a pinned program or map."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return _bpf(OBJ_GET, _buffer(struct.pack("=QII", ctypes.addressof(name), 0, 0)))


def map_sizes(fd: int) -> tuple[int, int]:
    """Key and value size in bytes, as the kernel has the map."""
    return _map_info(fd)[2:4]


def map_entries(fd: int) -> int:
    """How many entries the map has room for."""
    return _map_info(fd)[4]


def _map_info(fd: int) -> tuple[int, ...]:
    info = ctypes.create_string_buffer(MAP_INFO.size)
    _bpf(OBJ_GET_INFO_BY_FD, _buffer(struct.pack("=IIQ", fd, MAP_INFO.size, ctypes.addressof(info))))
    return MAP_INFO.unpack(info.raw)


def map_update(fd: int, key: bytes, value: bytes) -> None:
    key_buffer, value_buffer = _buffer(key), _buffer(value)
    _bpf(MAP_UPDATE_ELEM, _element(fd, key_buffer, value_buffer))


def map_delete(fd: int, key: bytes) -> None:
    key_buffer = _buffer(key)
    _bpf(MAP_DELETE_ELEM, _element(fd, key_buffer, key_buffer))


def map_lookup(fd: int, key: bytes, value_size: int) -> bytes | None:
    """The value, or None if the map has no such key."""
    key_buffer, value_buffer = _buffer(key), ctypes.create_string_buffer(value_size)
    try:
        _bpf(MAP_LOOKUP_ELEM, _element(fd, key_buffer, value_buffer))
    except FileNotFoundError:
        return None
    return value_buffer.raw


def map_lookup_all(fd: int, key_size: int, value_size: int) -> Iterator[tuple[bytes, bytes]]:
    """(keys, values) one after the other, in batches. Linux 5.6."""
    entries = BATCH_ENTRIES
    position, here = ctypes.create_string_buffer(8), 0
    more = True
    while more:
        keys = ctypes.create_string_buffer(entries * key_size)
        values = ctypes.create_string_buffer(entries * value_size)
        addresses = map(ctypes.addressof, (position, keys, values))
        request = _buffer(BATCH.pack(here, *addresses, entries, fd, 0, 0))
        try:
            _bpf(MAP_LOOKUP_BATCH, request)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # one hash bucket holds more than a batch
                entries *= 2
                continue
            if error.errno != errno.ENOENT:  # which says that this was the last batch
                raise
            more = False
        here = ctypes.addressof(position)
        found = BATCH.unpack(request.raw)[4]
        yield keys.raw[: found * key_size], values.raw[: found * value_size]


def _element(fd: int, key: ctypes.Array, value: ctypes.Array) -> ctypes.Array:
    return _buffer(ELEMENT.pack(fd, ctypes.addressof(key), ctypes.addressof(value), 0))


def _buffer(data: bytes) -> ctypes.Array:
    return ctypes.create_string_buffer(data, len(data))


def _bpf(command: int, attribute: ctypes.Array) -> int:
    """OSError with the kernel's errno if it refuses."""
    number = NUMBERS.get(platform.machine())
    if number is None:
        raise MissingFeature(f"BPF maps on {platform.machine()}: known are {', '.join(NUMBERS)}; use --clock virtual")
    result = _libc.syscall(number, command, attribute, len(attribute))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
