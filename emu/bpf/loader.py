"""Load compiled programs into the kernel, pinned under the run's id, and hand out their descriptors and maps.

bpftool does the loading (libbpf: relocations, kernel functions, verifier log); descriptors are opened from the pins.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from emu.bpf import bpffs, build, layout, syscall, tools
from emu.bpf.bpffs import remove_pins
from emu.bpf.maps import Map
from emu.errors import MissingFeature, unknown

__all__ = ["Bpf", "Loaded", "Map", "marker_supported", "remove_pins"]

# A mount of its own, so that nothing is left of a trial, however it ends
TRIAL = 'mount -t bpf bpf "$1" && exec "$2" prog loadall "$3" "$1/trial"'
TRIAL_MOUNT = "/sys/fs/bpf"  # there wherever the kernel has BPF
VERIFIER_STATISTICS = ("processed ", "verification time", "stack depth")
LIBBPF_CONSEQUENCES = ("failed to load object", "failed to load program")


class Loaded:
    """One object in the kernel: its programs' descriptors and its maps, open until `close()`."""

    def __init__(self, pins: Path, layouts: dict[str, layout.MapLayout]) -> None:
        with ExitStack() as undo:
            self._maps: dict[str, Map] = {}
            self._events: dict[str, int] = {}
            for pin in sorted((pins / "maps").iterdir()):
                if pin.name in layouts:
                    self._maps[pin.name] = Map(pin, layouts[pin.name])
                    undo.callback(self._maps[pin.name].close)
                else:
                    self._events[pin.name] = syscall.open_pin(pin)
                    undo.callback(os.close, self._events[pin.name])
            self._programs: dict[str, int] = {}
            for pin in sorted((pins / "programs").iterdir()):
                self._programs[pin.name] = syscall.open_pin(pin)
                undo.callback(os.close, self._programs[pin.name])
            self._undo = undo.pop_all()

    def program_fd(self, name: str) -> int:
        """Descriptor to attach a program by; valid until `close()`, after which what is attached stays attached."""
        if name not in self._programs:
            raise unknown("BPF program", name, self._programs)
        return self._programs[name]

    def map(self, name: str) -> Map:
        if name not in self._maps:
            raise unknown("BPF map", name, self._maps)
        return self._maps[name]

    def event_fd(self, name: str) -> int:
        """Descriptor of a ring buffer, for epoll; valid until `close()`."""
        if name not in self._events:
            raise unknown("BPF ring buffer", name, self._events)
        return self._events[name]

    def close(self) -> None:
        self._undo.close()


class Bpf:
    """The programs of one run: a context manager; leaving it removes the run's pins and no other's."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._loaded: dict[str, Loaded] = {}

    def __enter__(self) -> Bpf:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, object_name: str) -> Loaded:
        """The object emu/bpf/<object_name>.bpf.c, loaded once per run.

        UsageError: no such object. MissingFeature: no clang, bpftool or bpffs, or the kernel refuses the program; the
        message has the verifier's last words.
        """
        if object_name not in self._loaded:
            self._loaded[object_name] = self._load(object_name)
        return self._loaded[object_name]

    def close(self) -> None:
        """Close every descriptor and remove the run's pins; a second call does nothing."""
        while self._loaded:
            self._loaded.popitem()[1].close()
        remove_pins(self.run_id)

    def _load(self, object_name: str) -> Loaded:
        object_file = build.object_path(object_name)
        pins = bpffs.mount(self.run_id) / object_name
        pins.mkdir()
        arguments = (str(object_file), str(pins / "programs"), "pinmaps", str(pins / "maps"))
        done = tools.run("bpftool", "prog", "loadall", *arguments)
        if done.returncode:
            shutil.rmtree(pins)
            raise refused(object_name, done.stderr)
        return Loaded(pins, layout.read_maps(object_file))


def marker_supported() -> str | None:
    """None if the ECN marker loads into this kernel, else the reason; leaves no trace."""
    if os.geteuid() != 0:
        return "loading BPF programs needs root"
    try:
        object_file = build.object_path("marker")
        trial = ("--mount", "sh", "-c", TRIAL, "sh", TRIAL_MOUNT, tools.find("bpftool"), str(object_file))
        done = tools.run("unshare", *trial)
        return last_words(done.stderr) if done.returncode else None
    except MissingFeature as error:
        return str(error)


def refused(object_name: str, log: str) -> MissingFeature:
    return MissingFeature(
        f"this kernel refuses the BPF program {object_name!r}: {last_words(log)}; see what it can do: railbed probe"
    )


def last_words(log: str) -> str:
    """The line of bpftool's log that says why: the verifier's last, or else libbpf's first that is no consequence."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    begin = [at for at, line in enumerate(lines) if "BEGIN PROG LOAD LOG" in line]
    end = [at for at, line in enumerate(lines) if "END PROG LOAD LOG" in line]
    if begin and end:
        verdict = [line for line in lines[begin[0] + 1 : end[0]] if not line.startswith(VERIFIER_STATISTICS)]
        if verdict:
            return verdict[-1]
    said = [line.removeprefix("libbpf: ") for line in lines]
    causes = [line for line in said if not line.startswith(LIBBPF_CONSEQUENCES)]
    return next(iter(causes or said), "bpftool gave no reason")
