"""The queue of one port: netem (propagation, if any) -> TBF (line rate) -> RED (ECN), set over netlink and read back.

    handle 3:  netem   root, only where the link has a delay
    handle 1:  tbf     the line rate; its burst is one frame, or what a late timer has to make up for (emu.scale)
    handle 2:  red     switch ports where the kernel has it; else the BPF marker watches the tbf's backlog
    handle 5:  prio    NICs, where the kernel has it: acknowledgements don't wait behind data
    handle 4:  fq      NICs whose engine gives each packet its departure time

A NIC has no RED. Frames without payload are accounted at full length by a size table on the root. Every byte figure
is exact, every rate a whole number of bytes/s; `mismatches` compares what the kernel kept with what was asked. Of a size
table the kernel tells only how long it is, not its lengths; queue bytes prove those.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyroute2.netlink.rtnl import RTM_GETQDISC, RTM_NEWQDISC, TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins, tcmsg

from emu.errors import UsageError
from emu.fabric import red_law, sched_fq, sched_netem, sched_prio, sched_red, sched_tbf
from emu.fabric.attributes import attributes, text, u32
from emu.fabric.netlink import CREATE, REPLACE, Batch, Netlink
from emu.fabric.size_table import entries, size_table
from emu.fabric.template import Template, mark_number
from emu.scale import Scale
from emu.topology.plan import PortPlan
from emu.topology.queue_profile import EcnProfile

plugins["fq"] = sched_fq
plugins["red"] = sched_red
plugins["tbf"] = sched_tbf
plugins["netem"] = sched_netem

TBF_HANDLE, RED_HANDLE, NETEM_HANDLE, FQ_HANDLE, PRIO_HANDLE = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
HEADER_BYTES, TCMSG_BYTES = 16, 20  # struct nlmsghdr, struct tcmsg
IFINDEX_OFFSET, HANDLE_OFFSET = HEADER_BYTES + 4, HEADER_BYTES + 8
TCA_KIND, TCA_OPTIONS, TCA_XSTATS, TCA_STATS2, TCA_STAB = 1, 2, 4, 7, 8  # linux/rtnetlink.h
TCA_STATS_BASIC, TCA_STATS_QUEUE = 1, 3  # linux/gen_stats.h
TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_RED_PARMS, TCA_RED_MAX_P = 1, 4, 1, 3  # linux/pkt_sched.h
TCA_NETEM_LATENCY64 = 10
TCA_FQ_PLIMIT, TCA_FQ_FLOW_PLIMIT, TCA_FQ_TIMER_SLACK = 1, 2, 13
NIC_BUFFER_BYTES = 64 << 20  # the sending application waits for room long before
NETEM_LIMIT_PACKETS = FQ_LIMIT_PACKETS = 1 << 20
U32_MAX = (1 << 32) - 1
BURST_ROUNDING_TICKS = 1  # of 64 ns: the kernel turns bytes into time with a scaled reciprocal


@dataclass(frozen=True)
class QueueSetting:
    """What the kernel is asked for on one port: bytes/s, bytes, kernel ns; `red` is None without RED.

    elided: (length of a frame without its payload, length it counts), or None where frames are whole.
    paced: departure times are kept by fq. control_first: what has priority PRIORITY_CONTROL passes all else.
    """

    ifindex: int
    rate_bytes: int
    burst_bytes: int
    limit_bytes: int
    delay_ns: int
    ecn: EcnProfile | None
    red: red_law.RedFit | None
    elided: tuple[int, int] | None = None
    paced: bool = False
    control_first: bool = False


def setting(
    port: PortPlan, scale: Scale, frame_bytes: int, use_red: bool, *, elided: tuple[int, int] | None = None, paced: bool = False,
    control_first: bool = False,
) -> QueueSetting:
    """The port's queue in kernel terms; UsageError if RED can't follow the ramp, or the kernel can't hold a figure."""
    ecn = port.queue.ecn if port.queue else None
    fit = red_law.fit(ecn) if ecn and use_red else None
    if fit and fit.deviation > red_law.limit(ecn):
        raise UsageError(
            f"pmax={ecn.pmax:g} between kmin_bytes={ecn.kmin_bytes} and kmax_bytes={ecn.kmax_bytes}: this kernel's RED "
            f"would be off by {fit.deviation:.4f} of marking probability (limit {red_law.limit(ecn):.4f}); "
            "use a pmax up to 0.35 on a ramp (kmax_bytes - kmin_bytes) of at most pmax x 400 MB, or a step"
        )
    _check_range(port, scale, frame_bytes)
    return QueueSetting(
        ifindex=port.ifindex,
        rate_bytes=scale.kernel_bps(port.rate_bps) // 8,
        burst_bytes=scale.burst_bytes(port.rate_bps, frame_bytes),
        limit_bytes=port.queue.buffer_bytes if port.queue else NIC_BUFFER_BYTES,
        delay_ns=scale.kernel_ns(port.delay_ns),
        ecn=ecn,
        red=fit,
        elided=elided,
        paced=paced,
        control_first=control_first,
    )


def _check_range(port: PortPlan, scale: Scale, frame_bytes: int) -> None:
    if port.queue and port.queue.buffer_bytes < frame_bytes:
        raise UsageError(f"buffer_bytes={port.queue.buffer_bytes} holds no frame of {frame_bytes} bytes; want that at least")
    if not scale.kernel_bps(port.rate_bps):
        raise UsageError(
            f"{port.port}: dilation={scale.dilation} leaves {port.rate_bps / 1e9:g} Gb/s less than a byte a second; "
            "use a smaller dilation"
        )
    if port.queue and port.queue.buffer_bytes > U32_MAX:
        raise UsageError(f"buffer_bytes={port.queue.buffer_bytes} is more than a kernel queue counts; want less than 4 GiB")


def tbf_parent(queue: QueueSetting) -> int:
    """Where the port's TBF hangs: the root, or under the netem of a link with delay."""
    return NETEM_HANDLE | 1 if queue.delay_ns else TC_H_ROOT


def with_rate(queue: QueueSetting, rate_bytes: int) -> QueueSetting:
    """The same queue at another rate in bytes/s of kernel time."""
    return dataclasses.replace(queue, rate_bytes=rate_bytes)


def install(batch: Batch, queue: QueueSetting, what: str) -> None:
    """Queue up the messages that make the port's qdiscs."""
    for kind, template in _templates(dataclasses.replace(queue, ifindex=0), CREATE):
        batch.add_encoded(template.fill(ifindex=queue.ifindex), f"{kind} on {what}")


def change_rate(netlink: Netlink, queue: QueueSetting, what: str) -> None:
    """Replace the line rate of an installed queue; its packets and its child stay."""
    batch = Batch()
    templates = dict(_templates(dataclasses.replace(queue, ifindex=0), REPLACE))
    batch.add_encoded(templates["tbf"].fill(ifindex=queue.ifindex), f"tbf rate on {what}")
    netlink.run(batch)


@dataclass(frozen=True)
class QdiscState:
    """One qdisc: its kind, the knobs as the kernel keeps them, and its counters (packets and bytes; queued is now)."""

    kind: str
    knobs: dict[str, int]
    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    queued_packets: int
    queued_bytes: int
    marked_packets: int


def read(netlink: Netlink) -> dict[tuple[int, int], QdiscState]:
    """(interface number, handle) -> state, for every qdisc of the namespace."""
    return {
        (u32(raw, IFINDEX_OFFSET), u32(raw, HANDLE_OFFSET)): _state(raw)
        for raw in netlink.dump_raw(tcmsg(), RTM_GETQDISC)
    }


def mismatches(
    wanted: Iterable[QueueSetting], got: Mapping[tuple[int, int], QdiscState], names: Mapping[int, str]
) -> list[str]:
    """One line per knob that the kernel keeps otherwise than asked; empty when all is as it should be."""
    lines: list[str] = []
    for queue in wanted:
        for handle, knobs in _knobs(queue):
            state = got.get((queue.ifindex, handle))
            where = f"{names[queue.ifindex]} qdisc {handle >> 16:x}:"
            if state is None:
                lines.append(f"{where} is not there")
                continue
            lines += [
                f"{where} {knob} asked {want}, kernel keeps {state.knobs.get(knob)}"
                for knob, want in knobs.items()
                if abs(state.knobs.get(knob, -1) - want) > (BURST_ROUNDING_TICKS if knob == "buffer" else 0)
            ]
    return lines


@functools.cache
def _templates(shape: QueueSetting, flags: int) -> tuple[tuple[str, Template], ...]:
    """(kind, message with the interface number left open) of every qdisc of a queue; `shape` has ifindex 0."""
    found = []
    parent = TC_H_ROOT
    sizes = size_table(*shape.elided) if shape.elided else None
    if shape.delay_ns:
        options = sched_netem.get_parameters({"delay_ns": shape.delay_ns, "limit": NETEM_LIMIT_PACKETS})
        found.append(("netem", _template("netem", NETEM_HANDLE, parent, options, flags, sizes)))
        parent, sizes = NETEM_HANDLE | 1, None
    found.append(("tbf", _template("tbf", TBF_HANDLE, parent, _tbf_options(shape), flags, sizes)))
    if shape.red:
        found.append(("red", _template("red", RED_HANDLE, TBF_HANDLE | 1, _red_options(shape), flags)))
    parent = TBF_HANDLE | 1
    if shape.control_first:
        found.append(("prio", _template("prio", PRIO_HANDLE, parent, sched_prio.OPTIONS, flags)))
        parent = PRIO_HANDLE | sched_prio.DATA_CLASS
    if shape.paced:
        options = sched_fq.get_parameters({"limit": FQ_LIMIT_PACKETS})
        found.append(("fq", _template("fq", FQ_HANDLE, parent, options, flags)))
    return tuple(found)


def _template(
    kind: str, handle: int, parent: int, options: dict, flags: int, sizes: bytes | None = None
) -> Template:
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = mark_number(0), handle, parent
    message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options), *([("TCA_STAB", sizes)] if sizes else [])]
    return Template(message, RTM_NEWQDISC, flags, {"ifindex": mark_number(0)})


def _tbf_options(queue: QueueSetting) -> dict:
    return sched_tbf.get_parameters({"rate": queue.rate_bytes, "burst": queue.burst_bytes, "limit": queue.limit_bytes})


def _red_options(queue: QueueSetting) -> dict:
    return sched_red.get_parameters(
        {"limit": queue.limit_bytes, "qmin": queue.ecn.kmin_bytes, "qmax": queue.ecn.kmax_bytes,
         "max_p": queue.red.max_p, "ecn": True}
    )


def _knobs(queue: QueueSetting) -> Iterable[tuple[int, dict[str, int]]]:
    size_entries = queue.elided[1] + 1 if queue.elided else 0
    yield TBF_HANDLE, {
        "rate": queue.rate_bytes, "limit": queue.limit_bytes, "buffer": buffer_ticks(queue),
        "size_entries": 0 if queue.delay_ns else size_entries,
    }
    if queue.red:
        yield RED_HANDLE, {
            "limit": queue.limit_bytes, "qth_min": queue.ecn.kmin_bytes, "qth_max": queue.ecn.kmax_bytes, "wlog": 0,
            "max_p": queue.red.max_p, "flags": sched_red.TC_RED_ECN,
        }
    if queue.delay_ns:
        yield NETEM_HANDLE, {"delay_ns": queue.delay_ns, "limit": NETEM_LIMIT_PACKETS, "size_entries": size_entries}
    if queue.control_first:
        yield PRIO_HANDLE, {"bands": sched_prio.BANDS}
    if queue.paced:
        yield FQ_HANDLE, {"limit": FQ_LIMIT_PACKETS, "flow_limit": FQ_LIMIT_PACKETS, "slack_ns": sched_fq.TIMER_SLACK_NS}


def buffer_ticks(queue: QueueSetting) -> int:
    """The burst as TBF shows it: the time to send it at line rate, in ticks of 64 ns, rounded down."""
    return queue.burst_bytes * 1_000_000_000 // queue.rate_bytes // sched_tbf.NS_PER_TICK


def _state(raw: bytes) -> QdiscState:
    found = attributes(raw, HEADER_BYTES + TCMSG_BYTES)
    kind = text(found[TCA_KIND])
    stats = attributes(found[TCA_STATS2])
    sent_bytes, sent_packets = struct.unpack_from("=QI", stats[TCA_STATS_BASIC])
    queued_packets, queued_bytes, dropped = struct.unpack_from("=III", stats[TCA_STATS_QUEUE])
    return QdiscState(
        kind=kind, knobs=_kept(kind, found.get(TCA_OPTIONS, b"")) | {"size_entries": entries(found.get(TCA_STAB))},
        sent_packets=sent_packets, sent_bytes=sent_bytes,
        dropped_packets=dropped, queued_packets=queued_packets, queued_bytes=queued_bytes,
        marked_packets=_red_xstats(found[TCA_XSTATS])["marked"] if kind == "red" else 0,
    )


def _kept(kind: str, options: bytes) -> dict[str, int]:
    """The knobs in the plugins' names; the structures are the plugins' own field lists."""
    if kind == "netem":
        latency = attributes(options, sched_netem.QOPT_BYTES)[TCA_NETEM_LATENCY64]
        return {"delay_ns": struct.unpack("=q", latency)[0], "limit": u32(options, sched_netem.LIMIT_OFFSET)}
    if kind == "prio":
        return {"bands": u32(options, 0)}
    if kind not in ("tbf", "red", "fq"):
        return {}
    found = attributes(options)
    if kind == "fq":
        numbers = {"limit": TCA_FQ_PLIMIT, "flow_limit": TCA_FQ_FLOW_PLIMIT, "slack_ns": TCA_FQ_TIMER_SLACK}
        return {name: u32(found[number]) for name, number in numbers.items()}
    if kind == "red":
        return _red_parms(found[TCA_RED_PARMS]) | {"max_p": u32(found[TCA_RED_MAX_P])}
    kept = _tbf_parms(found[TCA_TBF_PARMS])
    if TCA_TBF_RATE64 in found:
        kept["rate"] = struct.unpack("=Q", found[TCA_TBF_RATE64])[0]
    return kept


def _reader(fields: Sequence[tuple[str, str]]) -> Callable[[bytes], dict[str, int]]:
    """Unpacks a C structure described as pyroute2 describes it: (name, struct letter) pairs."""
    layout, names = struct.Struct("=" + "".join(letter for _, letter in fields)), [name for name, _ in fields]
    return lambda data: dict(zip(names, layout.unpack_from(data), strict=True))


_tbf_parms = _reader(sched_tbf.options.tbf_parms.fields)
_red_parms = _reader(sched_red.options.red_parms.fields)
_red_xstats = _reader(sched_red.stats.fields)
