"""The ECN marker for kernels without sch_red: an eBPF program before each switch port's queue (emu/bpf/marker.bpf.c)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from emu.bpf.loader import Bpf
from emu.bpf.marker import OBJECT, PROGRAM, set_port
from emu.fabric.bpf_filter import EGRESS, add_clsact, attach
from emu.fabric.netlink import Batch, Netlink
from emu.topology.plan import Plan

BUCKETS = 64


def attach_markers(bpf: Bpf, plan: Plan, netlinks: Mapping[str, Netlink]) -> None:
    """One program for all switch ports that mark; each port's law and seed in its map entry."""
    loaded = bpf.load(OBJECT)
    for node in plan.nodes:
        batch = Batch()
        for port in node.ports:
            ecn = port.queue.ecn if port.queue else None
            if not ecn:
                continue
            set_port(
                loaded, port.ifindex, kmin_bytes=ecn.kmin_bytes, kmax_bytes=ecn.kmax_bytes, pmax=ecn.pmax,
                bucket_bytes=bucket_bytes(ecn.kmax_bytes), seed=port_seed(plan.seed, str(port.port)),
            )
            add_clsact(batch, port.ifindex, str(port.port))
            attach(batch, port.ifindex, EGRESS, loaded.program_fd(PROGRAM), "marker", str(port.port))
        netlinks[node.name].run(batch)


def read_marks(bpf: Bpf) -> dict[int, int]:
    """Interface number -> packets marked so far."""
    counters = bpf.load(OBJECT).map("port_counters").read_all()
    return {ifindex: entry.marked_packets for ifindex, entry in counters.items()}


def read_depths(bpf: Bpf, ifindex: int) -> tuple[int, ...]:
    """Packets so far that found the port's queue in each depth bucket (`bucket_bytes` wide; the last has no end)."""
    return tuple(bpf.load(OBJECT).map("port_depth").read(ifindex).seen)


def bucket_bytes(kmax_bytes: int) -> int:
    """Width of a depth bucket such that Kmax falls into the last but a few."""
    return max(1, -(-kmax_bytes // (BUCKETS - 4)))


def port_seed(seed: int, port: str) -> int:
    """64-bit seed of a port's draws."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{port}".encode()).digest()[:8], "big") or 1
