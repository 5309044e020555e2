"""NCCL's topology files: which NIC belongs to which GPU of a server, so which rail a GPU is on.

GPUs (PCI class 0x03…) and NICs (0x02…) hang in the tree of CPUs and PCIe switches. The NICs nearest to a GPU are those under
the deepest switch that has both. Where several GPUs share several NICs there, NCCL spreads them: the GPU's number modulo the
GPUs that share, its bits mirrored if the NICs are a power of two, counts off the NIC of the first channel.
Numbers are the file's (`dev` of <gpu> and <net>) where it has them, else the order of PCI addresses, as nvidia-smi has it.
Source: NVIDIA nccl src/graph/xml.cc (classes), topo.cc (ncclTopoGetLocalNet).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from xml.parsers import expat

from emu.errors import UsageError
from emu.workload.text import DIGITS, read_bytes, shown

WHAT = "an NCCL topology file (XML: system, cpu, pci)"
BUS_ID = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
KINDS = {"0x03": "GPU", "0x02": "NIC"}  # by the base class of the PCI class code
Address = tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """`way`: the elements of the file that it hangs under (system, CPU, PCIe switches), from the top, by their number there."""

    bus_id: str
    way: tuple[int, ...]


@dataclass(frozen=True)
class ServerTopology:
    """Devices by number. `nic_of[gpu]`: the NIC of a GPU."""

    path: str
    gpus: tuple[Device, ...]
    nics: tuple[Device, ...]
    nic_of: tuple[int, ...]

    def rails(self) -> tuple[int, ...]:
        """`nic_of`, where every GPU has a NIC of its own. UsageError: it hasn't, so that the server can't be wired by rails."""
        if len(set(self.nic_of)) != len(self.gpus) or len(self.nics) != len(self.gpus):
            raise UsageError(
                f"{self.path}: {len(self.gpus)} GPUs use {len(set(self.nic_of))} of {len(self.nics)} NICs (by GPU: "
                f"{', '.join(map(str, self.nic_of))}); want one NIC a GPU for wiring by rails"
            )
        return self.nic_of


def read_nccl_topology(path: str) -> ServerTopology:
    """UsageError with file and line: no XML, no topology, a device without class or address, numbers that don't fit."""
    parser = _Parser(path)
    parser.run(read_bytes(path, WHAT))
    gpus, nics = parser.numbered("GPU"), parser.numbered("NIC")
    return ServerTopology(path, gpus, nics, tuple(_nic_of(number, gpus, nics) for number in range(len(gpus))))


@dataclass
class _Found:
    kind: str
    device: Device
    address: Address
    line: int
    number: int | None = None


class _Parser:
    """Keeps the way from the root to where expat is, and the devices that it came by."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.found: list[_Found] = []
        self._elements = 0
        self._way: list[tuple[int, _Found | None]] = []
        self._expat = expat.ParserCreate("UTF-8")  # whatever the file says it is in: NCCL reads bytes
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = lambda tag: self._way.pop()
        self._expat.StartDoctypeDeclHandler = self._doctype

    def run(self, data: bytes) -> None:
        try:
            self._expat.Parse(data, True)
        except expat.ExpatError as error:
            raise UsageError(
                f"{self.path}:{error.lineno}: no XML ({expat.ErrorString(error.code)}); want {WHAT}"
            ) from None

    def numbered(self, kind: str) -> tuple[Device, ...]:
        """The devices of a kind, each at its number."""
        found = sorted((one for one in self.found if one.kind == kind), key=lambda one: one.address)
        if not found:
            raise UsageError(f"{self.path}: no {kind}; want pci elements of class 0x0302… (GPU) and 0x02… (NIC)")
        with_number = [one for one in found if one.number is not None]
        if not with_number:
            return tuple(one.device for one in found)
        if sorted(one.number for one in with_number) != list(range(len(found))):
            first = with_number[0]
            raise UsageError(
                f"{self.path}:{first.line}: {len(with_number)} of {len(found)} {kind}s have a dev; want 0 to {len(found) - 1}, "
                "each once"
            )
        return tuple(one.device for one in sorted(found, key=lambda one: one.number))

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._way and tag != "system":
            raise self._refused(f"the root is {shown(tag)}; want system")
        device = self._device(attributes) if tag == "pci" else None
        if tag in ("gpu", "net") and "dev" in attributes:
            self._number("GPU" if tag == "gpu" else "NIC", attributes["dev"])
        self._way.append((self._elements, device))
        self._elements += 1

    def _device(self, attributes: dict[str, str]) -> _Found | None:
        for name in ("busid", "class"):
            if name not in attributes:
                raise self._refused(f"pci without {name}; want its PCI {'address' if name == 'busid' else 'class'}")
        bus_id, address = attributes["busid"], BUS_ID.fullmatch(attributes["busid"])
        if not address:
            raise self._refused(f"busid {shown(bus_id)}; want a PCI address like 0001:00:00.0")
        kind = KINDS.get(attributes["class"][:4])
        if kind is None:
            return None
        device = Device(bus_id, tuple(element for element, _ in self._way))
        found = _Found(kind, device, tuple(int(part, 16) for part in address.groups()), self._expat.CurrentLineNumber)
        for other in self.found:
            if other.address == found.address:
                raise self._refused(f"busid {bus_id} as in line {other.line}; want every device once")
        self.found.append(found)
        return found

    def _number(self, kind: str, dev: str) -> None:
        owner = next((device for _, device in reversed(self._way) if device), None)
        if owner is None or owner.kind != kind:
            raise self._refused(f"dev outside a {kind}'s pci element; want it inside")
        if not DIGITS.fullmatch(dev):
            raise self._refused(f"dev is {shown(dev)}; want a whole number")
        if owner.number is not None:
            raise self._refused(f"a second dev for {owner.device.bus_id}; want one port a NIC")
        owner.number = int(dev)

    def _doctype(self, *_: object) -> None:
        raise self._refused(f"a document type; want {WHAT} without one")

    def _refused(self, wrong: str) -> UsageError:
        return UsageError(f"{self.path}:{self._expat.CurrentLineNumber}: {wrong}")


def _nic_of(number: int, gpus: Sequence[Device], nics: Sequence[Device]) -> int:
    near = _nearest(gpus[number], nics)
    sharing = len(_nearest(nics[near[0]], gpus))
    place = number % sharing
    if len(near).bit_count() == 1:
        place = _mirrored(place, len(near))
    return near[place % len(near)]


def _nearest(device: Device, others: Sequence[Device]) -> list[int]:
    depths = [sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(device.way, other.way, strict=False)))
              for other in others]
    return [number for number, depth in enumerate(depths) if depth == max(depths)]


def _mirrored(value: int, power: int) -> int:
    """The bits of `value` below `power` in reverse order."""
    bits = power.bit_length() - 1
    return int(format(value % power, f"0{bits}b")[::-1], 2) if bits else 0
