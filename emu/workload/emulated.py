"""What of a training iteration is emulated, as all of it would be a day's work: fewer layers, a share of every size and time.

Bytes and compute times are divided by the same number, so that what computes and what communicates keep their proportion;
latencies of links are not, so that the smaller the share, the more of the time is latency. What is left out is in `said`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from emu.errors import UsageError
from emu.workload.closed_forms import closed_forms
from emu.workload.event import Event, sent_by_kind
from emu.workload.iteration import iteration
from emu.workload.job import Job
from emu.workload.simai import read_simai, simai_events


MOST_BYTES = 100_000_000_000  # of all ranks: ten minutes or so


@dataclass(frozen=True, kw_only=True)
class Emulated:
    """`whole`: bytes by kind that all ranks send in the whole iteration, from its events; `formula`: by closed form, or None.

    `events` are those that are emulated, on `ranks` GPUs; `said` is how they differ from the whole.
    UsageError: they send too much to be emulated.
    """

    whole: Mapping[str, Fraction]
    formula: Mapping[str, Fraction] | None
    events: Sequence[Event]
    ranks: int
    said: str

    def __post_init__(self) -> None:
        sent = int(sum(sent_by_kind(self.events).values()))
        if sent > MOST_BYTES:
            raise UsageError(
                f"{sent // 10**6:,} MB to emulate; want at most {MOST_BYTES // 10**6:,} MB: a larger scale_down, or fewer layers"
            )


def of_job(job: Job, layers: int, scale_down: int) -> Emulated:
    """The first `layers` of the model (0: all), spread over the stages as the job's. UsageError: fewer layers than stages."""
    cut = replace(job, model=replace(job.model, layers=_first(layers, job.model.layers, job.pp)))
    return Emulated(
        whole=sent_by_kind(iteration(job)), formula=closed_forms(job), events=scaled(iteration(cut), scale_down), ranks=job.ranks,
        said=f"emulated: {cut.model.layers} of {job.model.layers} layers, 1/{scale_down} of bytes and compute time",
    )


def of_simai(path: str, layers: int, dp: int, scale_down: int) -> Emulated:
    """A SimAI file: its first `layers` lines (0: all), `dp` of its replicas (at most all), one of its stages.

    UsageError: what can't be read, replicas that its expert groups don't divide.
    """
    workload = read_simai(path)
    replicas = min(dp, workload.dp)
    if replicas % workload.ep:
        raise UsageError(f"dp={dp}: {path} has ep {workload.ep}, which shares experts evenly; want a multiple of {workload.ep}")
    lines = _first(layers, len(workload.layers))
    gpus = workload.tp * workload.pp * replicas
    cut = replace(workload, gpus=gpus, layers=workload.layers[:lines])
    unsent = f"; {workload.pp_sent_bytes} bytes a rank between stages are not sent" if workload.pp > 1 else ""
    return Emulated(
        whole=sent_by_kind(simai_events(workload, everybody=True)), formula=None,
        events=scaled(simai_events(cut, everybody=True), scale_down), ranks=gpus // workload.pp,
        said=f"emulated: {lines} of {len(workload.layers)} lines, {replicas} of {workload.dp} replicas, a stage of {workload.pp}"
             f", 1/{scale_down} of bytes and compute time{unsent}",
    )


def scaled(events: Sequence[Event], divisor: int) -> tuple[Event, ...]:
    """Sizes and durations over `divisor`, rounded down, sizes to a byte at least."""
    return tuple(
        event._replace(size_bytes=max(1, event.size_bytes // divisor) if event.collective else 0,
                       duration_ns=event.duration_ns // divisor)
        for event in events
    )


def _first(wanted: int, there: int, least: int = 1) -> int:
    """`wanted` of those that are there, at most all; 0 for all."""
    if 0 < wanted < least:
        raise UsageError(f"layers={wanted} on pp={least} stages; want at least {least}, or 0 for all")
    return min(wanted, there) or there
