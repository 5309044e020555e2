"""`--set capture=srv0:rail0+leaf0:down1`: the packets of chosen ports as pcapng files, in fabric time, in --out."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import UsageError
from emu.scenario.choice import Values
from emu.topology.model import Port, Topology

if TYPE_CHECKING:
    from emu.fabric.fabric import Fabric
    from emu.report.capture import Capture

SEPARATOR = "+"


def check(p: Values, topology: Topology, out: Path | None) -> None:
    """UsageError for a port that the cluster doesn't have, or no folder to write to; before anything is built."""
    names = _names(p)
    if names and out is None:
        raise UsageError(f"capture={p.capture} writes files: give the folder with --out DIR")
    ports = {str(port) for link in topology.links for port in (link.a, link.b)}
    for name in names:
        if name not in ports:
            near = difflib.get_close_matches(name, ports, n=1) or sorted(ports)[:1]
            raise UsageError(f"capture: no port {name!r}; ports are NODE:INTERFACE joined by {SEPARATOR}, such as {near[0]!r}")


@contextlib.contextmanager
def recording(fabric: Fabric, p: Values, out: Path | None, label: str, warnings: list[str]) -> Iterator[None]:
    """Record the ports meanwhile; one file a port, `label` in its name where there are several combinations.

    A file that has not all packets is a warning more.
    """
    with contextlib.ExitStack() as stack:
        for name in _names(p):
            capture = stack.enter_context(_open(fabric, Port.parse(name)))
            prefix = re.sub(r"[^\w.=]+", "-", f"{label} {name}".strip())
            stack.callback(_write, capture, out / f"{prefix}.pcapng", warnings)
        yield


def _open(fabric: Fabric, port: Port) -> Capture:
    from emu.report.capture import Capture  # needs the kernel's side, which `railbed list` does not

    return Capture(fabric, port)


def _write(capture: Capture, path: Path, warnings: list[str]) -> None:
    capture.write(path)
    if capture.lost:
        warnings.append(f"{path.name} lacks {capture.lost} packets, which did not fit the capture's buffer")


def _names(p: Values) -> list[str]:
    return [name.strip() for name in p.capture.split(SEPARATOR)] if "capture" in p.as_dict() and p.capture else []
