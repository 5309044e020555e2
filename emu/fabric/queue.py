"""The queue of one port: netem (propagation, if any) -> TBF (line rate) -> RED (ECN), set over netlink and read back.

    handle 3:  netem   root, only where the link has a delay
    handle 1:  tbf     the line rate; its burst is one frame, or what a late timer has to make up for (emu.scale)
    handle 2:  red     switch ports where the kernel has it; else the BPF marker watches the tbf's backlog

A NIC has no RED. Every byte figure is exact, every rate a whole number of bytes/s; `mismatches` compares what the kernel
kept with what was asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, sched_netem, tcmsg

from emu.errors import UsageError
from emu.fabric import red_law, sched_red, sched_tbf
from emu.fabric.netlink import CREATE, REPLACE, Batch, Netlink
from emu.scale import Scale
from emu.topology.plan import PortPlan
from emu.topology.queue_profile import EcnProfile

plugins["red"] = sched_red
plugins["tbf"] = sched_tbf

TBF_HANDLE, RED_HANDLE, NETEM_HANDLE = 0x10000, 0x20000, 0x30000
NIC_BUFFER_BYTES = 64 << 20  # the sending application waits for room long before
NETEM_LIMIT_PACKETS = 1 << 20
BURST_ROUNDING_TICKS = 1  # of 64 ns: the kernel turns bytes into time with a scaled reciprocal


@dataclass(frozen=True)
class QueueSetting:
    """What the kernel is asked for on one port: bytes/s, bytes, kernel microseconds; `red` is None without RED."""

    ifindex: int
    rate_bytes: int
    burst_bytes: int
    limit_bytes: int
    delay_us: int
    ecn: EcnProfile | None
    red: red_law.RedFit | None


def setting(port: PortPlan, scale: Scale, frame_bytes: int, use_red: bool) -> QueueSetting:
    """The port's queue in kernel terms; UsageError if RED can't follow the profile's ramp."""
    ecn = port.queue.ecn if port.queue else None
    fit = red_law.fit(ecn) if ecn and use_red else None
    if fit and fit.deviation > red_law.DEVIATION_LIMIT:
        raise UsageError(
            f"pmax={ecn.pmax:g} between kmin_bytes={ecn.kmin_bytes} and kmax_bytes={ecn.kmax_bytes}: this kernel's RED "
            f"would be off by {fit.deviation:.3f} of marking probability (limit {red_law.DEVIATION_LIMIT}); "
            "use a pmax up to 0.35, or a step (kmin_bytes = kmax_bytes)"
        )
    return QueueSetting(
        ifindex=port.ifindex,
        rate_bytes=scale.kernel_bps(port.rate_bps) // 8,
        burst_bytes=scale.burst_bytes(port.rate_bps, frame_bytes),
        limit_bytes=port.queue.buffer_bytes if port.queue else NIC_BUFFER_BYTES,
        delay_us=round(scale.kernel_ns(port.delay_ns) / 1000),
        ecn=ecn,
        red=fit,
    )


def with_rate(queue: QueueSetting, rate_bytes: int) -> QueueSetting:
    """The same queue at another rate in bytes/s of kernel time."""
    return dataclasses.replace(queue, rate_bytes=rate_bytes)


def install(batch: Batch, queue: QueueSetting, what: str) -> None:
    """Queue up the messages that make the port's qdiscs."""
    parent = TC_H_ROOT
    if queue.delay_us:
        options = sched_netem.get_parameters({"delay": queue.delay_us, "limit": NETEM_LIMIT_PACKETS})
        _add(batch, "netem", queue.ifindex, NETEM_HANDLE, parent, options, f"netem on {what}")
        parent = NETEM_HANDLE | 1
    _add(batch, "tbf", queue.ifindex, TBF_HANDLE, parent, _tbf_options(queue), f"tbf on {what}")
    if queue.red:
        _add(batch, "red", queue.ifindex, RED_HANDLE, TBF_HANDLE | 1, _red_options(queue), f"red on {what}")


def change_rate(netlink: Netlink, queue: QueueSetting, what: str) -> None:
    """Replace the line rate of an installed queue; its packets and its child stay."""
    batch = Batch()
    parent = NETEM_HANDLE | 1 if queue.delay_us else TC_H_ROOT
    _add(batch, "tbf", queue.ifindex, TBF_HANDLE, parent, _tbf_options(queue), f"tbf rate on {what}", REPLACE)
    netlink.run(batch)


def read(netlink: Netlink) -> list[tcmsg]:
    """Every qdisc of the namespace."""
    return netlink.dump(tcmsg(), RTM_GETQDISC)


def mismatches(wanted: Iterable[QueueSetting], got: Iterable[tcmsg], names: dict[int, str]) -> list[str]:
    """One line per knob that the kernel keeps otherwise than asked; empty when all is as it should be."""
    found = {(message["index"], message["handle"]): message for message in got}
    lines: list[str] = []
    for queue in wanted:
        for handle, knobs in _knobs(queue):
            message = found.get((queue.ifindex, handle))
            where = f"{names[queue.ifindex]} qdisc {handle >> 16:x}:"
            if message is None:
                lines.append(f"{where} is not there")
                continue
            kept = _kept(message)
            lines += [
                f"{where} {knob} asked {want}, kernel keeps {kept.get(knob)}"
                for knob, want in knobs.items()
                if abs(kept.get(knob, -1) - want) > (BURST_ROUNDING_TICKS if knob == "buffer" else 0)
            ]
    return lines


def _add(
    batch: Batch, kind: str, ifindex: int, handle: int, parent: int, options: dict, what: str, flags: int = CREATE
) -> None:
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = ifindex, handle, parent
    message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
    batch.add(message, RTM_NEWQDISC, flags, what)


def _tbf_options(queue: QueueSetting) -> dict:
    return sched_tbf.get_parameters({"rate": queue.rate_bytes, "burst": queue.burst_bytes, "limit": queue.limit_bytes})


def _red_options(queue: QueueSetting) -> dict:
    return sched_red.get_parameters(
        {"limit": queue.limit_bytes, "qmin": queue.ecn.kmin_bytes, "qmax": queue.ecn.kmax_bytes,
         "max_p": queue.red.max_p, "ecn": True}
    )


def _knobs(queue: QueueSetting) -> Iterable[tuple[int, dict[str, int]]]:
    yield TBF_HANDLE, {"rate": queue.rate_bytes, "limit": queue.limit_bytes, "buffer": buffer_ticks(queue)}
    if queue.red:
        yield RED_HANDLE, {
            "limit": queue.limit_bytes, "qth_min": queue.ecn.kmin_bytes, "qth_max": queue.ecn.kmax_bytes, "wlog": 0,
            "max_p": queue.red.max_p, "flags": sched_red.TC_RED_ECN,
        }
    if queue.delay_us:
        yield NETEM_HANDLE, {"delay_us": queue.delay_us}


def buffer_ticks(queue: QueueSetting) -> int:
    """The burst as TBF shows it: the time to send it at line rate, in ticks of 64 ns, rounded down."""
    return queue.burst_bytes * 1_000_000_000 // queue.rate_bytes // sched_tbf.NS_PER_TICK


def _kept(message: tcmsg) -> dict[str, int]:
    options = message.get_attr("TCA_OPTIONS")
    kind = message.get_attr("TCA_KIND")
    if kind == "tbf":
        kept = dict(options.get_attr("TCA_TBF_PARMS"))
        kept["rate"] = options.get_attr("TCA_TBF_RATE64") or kept["rate"]
        return kept
    if kind == "red":
        return dict(options.get_attr("TCA_RED_PARMS")) | {"max_p": options.get_attr("TCA_RED_MAX_P")}
    if kind == "netem":
        return {"delay_us": round(options["delay"] * sched_tbf.NS_PER_TICK / 1000)}
    return {}
