"""The iteration that the parameters of `parallelism` describe, and what its emulation needs."""

from __future__ import annotations

from functools import lru_cache

from emu.errors import UsageError
from emu.scenario.choice import Values
from emu.topology.scale_up_profiles import profile
from emu.units import gbps
from emu.workload.compute_clock import ComputeClock
from emu.workload.emulated import Emulated, of_job, of_simai
from emu.workload.job import Job
from emu.workload.links import Links
from emu.workload.model import model_named
from emu.workload.nccl_topology import read_nccl_topology

_of_job, _of_simai = lru_cache(maxsize=16)(of_job), lru_cache(maxsize=16)(of_simai)


def emulated(p: Values) -> Emulated:
    """From `workload`, or from `model` and the sizes of its parallelisms; UsageError: what does not fit."""
    if p.workload:
        return _of_simai(p.workload, p.layers, p.dp, p.scale_down)
    job = Job(model=model_named(p.model), tp=p.tp, pp=p.pp, dp=p.dp, ep=p.ep, micro_batches=p.micro_batches, sequence=p.sequence,
              gpus_per_server=p.gpus_per_server)
    return _of_job(job, p.layers, p.scale_down)


def clock(p: Values) -> ComputeClock:
    return ComputeClock.for_times((event.duration_ns for event in emulated(p).events), p.mtu)


def links(p: Values) -> Links:
    """Without a live scale-up domain its links are so fast that they take no time."""
    scale_up_bps = profile(p.technology).rate_bps if p.scale_up != "none" else 1 << 62
    return Links(scale_up_bps=scale_up_bps, nic_bps=gbps(p.rate_gbps), gpus_per_server=p.gpus_per_server)


def nic_of(p: Values) -> tuple[int, ...]:
    """The NIC of each GPU by `nccl_topology`; () without. UsageError: not one NIC a GPU, or another number of GPUs."""
    if not p.nccl_topology:
        return ()
    rails = read_nccl_topology(p.nccl_topology).rails()
    if len(rails) != p.gpus_per_server:
        raise UsageError(f"{p.nccl_topology} has {len(rails)} GPUs; want gpus_per_server={len(rails)}")
    return rails
