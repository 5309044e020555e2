"""What this kernel and machine can do: the one place that knows which kernel Railbed runs on.

Each feature is tried in a scratch namespace, not guessed from version numbers.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emu.bpf import loader
from emu.errors import FabricError, MissingFeature
from emu.fabric import netns, registry, routes, sched_prio
from emu.fabric.link import LO_IFINDEX
from emu.fabric.netlink import CHANGE, CREATE, Batch, Netlink
from emu.fabric.queue import NETEM_LIMIT_PACKETS, TBF_HANDLE  # registers the tbf and red plugins
from emu.fabric.sched_netem import get_parameters as netem_parameters
from emu.fabric.sched_red import get_parameters as red_parameters
from emu.fabric.sched_tbf import get_parameters as tbf_parameters
from emu.fabric.undisturbed import undisturbed


@dataclass(frozen=True)
class Feature:
    """One thing that was tried: `lacks` is None if it works, else the reason."""

    name: str
    purpose: str
    lacks: str | None

    @property
    def works(self) -> bool:
        return self.lacks is None


@dataclass(frozen=True)
class Probe:
    """What was found; `rows()` is what `railbed probe` prints."""

    kernel: str
    features: tuple[Feature, ...]

    def works(self, name: str) -> bool:
        return any(feature.name == name and feature.works for feature in self.features)

    def lacks(self, name: str) -> str | None:
        return next(feature.lacks for feature in self.features if feature.name == name)

    def rows(self) -> list[dict[str, str]]:
        return [
            {"feature": f.name, "works": "yes" if f.works else "no", "for": f.purpose, "because": f.lacks or ""}
            for f in self.features
        ]


@functools.cache
def probe() -> Probe:
    """Try everything once; MissingFeature (exit 3) without the right to make a namespace."""
    require_root()
    run_id = registry.new_run_id()
    scratch = netns.name_of(run_id, "probe")
    with undisturbed():
        try:
            registry.register(run_id)
            netns.create(scratch)
            with Netlink(scratch) as netlink:
                features = tuple(Feature(name, purpose, trial(netlink)) for name, purpose, trial in _trials(scratch))
        finally:
            netns.remove(scratch)
            registry.forget(run_id)
    return Probe(kernel=kernel_name(), features=features)


def require_root() -> None:
    """MissingFeature unless this process may make namespaces."""
    if os.geteuid() != 0:
        raise MissingFeature(
            "building a fabric in this kernel needs root; run it with sudo, or add --clock virtual (no root needed)"
        )


def kernel_name() -> str:
    """Linux 6.18.1 x86_64, as a result file names the kernel."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def _trials(scratch: str) -> list[tuple[str, str, Callable[[Netlink], str | None]]]:
    red = red_parameters({"limit": 1 << 20, "qmin": 1000, "qmax": 2000, "max_p": 1 << 20, "ecn": True})
    netem = netem_parameters({"delay_ns": 1000, "limit": NETEM_LIMIT_PACKETS})
    tbf = tbf_parameters({"rate": 10_000_000_000, "burst": 10_000, "limit": 1 << 20})
    return [
        ("sch_tbf", "line rate of every port, above 34 Gb/s too", _qdisc("tbf", tbf)),
        ("sch_red", "ECN marking by the queue itself", _qdisc("red", red)),
        ("bpf_marker", "ECN marking where sch_red is absent", lambda _: loader.marker_supported()),
        ("sch_netem", "propagation delay of links (delay_ns)", _qdisc("netem", netem)),
        ("sch_fq", "departure times of packets (NICs with cc=dcqcn)", _qdisc("fq", None)),
        ("sch_prio", "acknowledgements before data in a NIC", _qdisc("prio", sched_prio.OPTIONS)),
        ("clsact", "counting and steering by eBPF", _qdisc("clsact", None)),
        ("ecmp_l4_hash", "ECMP over the 5-tuple", lambda _: _knob(scratch, "ipv4/fib_multipath_hash_policy")),
        ("ecmp_hash_seed", "a hash seed per switch", lambda _: _knob(scratch, "ipv4/fib_multipath_hash_seed")),
        ("mnexec", "railbed shell (Debian package mininet)", lambda _: _program("mnexec")),
    ]


def _qdisc(kind: str, options: dict | None) -> Callable[[Netlink], str | None]:
    def trial(netlink: Netlink) -> str | None:
        message = tcmsg()
        message["index"], message["parent"], message["handle"] = LO_IFINDEX, TC_H_ROOT, TBF_HANDLE
        if kind == "clsact":
            message["parent"], message["handle"] = 0xFFFFFFF1, 0xFFFF0000
        message["attrs"] = [("TCA_KIND", kind)]
        if options is not None:
            message["attrs"].append(("TCA_OPTIONS", options))
        batch = Batch()
        batch.add(message, RTM_NEWQDISC, CREATE, kind)
        try:
            netlink.run(batch)
        except FabricError as error:
            return str(error).rpartition(f"{kind}: ")[2]
        netlink.run(_removal(message["parent"]))
        return None

    return trial


def _removal(parent: int) -> Batch:
    message = tcmsg()
    message["index"], message["parent"] = LO_IFINDEX, parent
    batch = Batch()
    batch.add(message, RTM_DELQDISC, CHANGE, "remove the trial's qdisc")
    return batch


def _knob(scratch: str, knob: str) -> str | None:
    with netns.inside(scratch):
        return None if (routes.SYSCTL / knob).exists() else f"no net/{knob}"


def _program(name: str) -> str | None:
    return None if shutil.which(name) else f"{name} is not installed; ./lab setup installs it"
