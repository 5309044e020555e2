"""One training iteration as events: the passes of every pipeline stage layer by layer, then the gradients.

    attention   (all-gather) compute (reduce-scatter), over tp; without sequence parallelism: compute, AllReduce
    dense       the same
    experts     dispatch, compute, combine, over ep

forward and backward alike, the backward pass through the parts in reverse order and with twice the compute; so tp and ep have
4 communications per layer and micro-batch (tp as AllReduces; each is a pair with sequence parallelism), or 6 where the backward
pass recomputes. What a stage passes on is sent while it goes on computing. A stage's gradients are reduced when its last
backward pass has ended, not overlapped; the shared expert is not split over tp.

Not counted: tp's traffic at the embedding and the loss, its second all-gather for weight gradients (Megatron hides it behind
compute), the norms' gradients over tp, the optimizer's time. No interleaved pipeline stages, no context parallelism.
Source: domain facts, parallelism traffic; Megatron-LM (arXiv 2104.04473, 2205.05198), DeepSeek-V3 report section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from emu.errors import UsageError
from emu.workload.event import Event
from emu.workload.job import Groups, Job
from emu.workload.model import BACKWARD, BF16_BYTES
from emu.workload.pipeline import Pass, all_stages

GRADIENT_BYTES, PARAMETER_BYTES = 4, 2  # Megatron: gradients are summed in FP32, parameters are BF16
NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Computes flops_per_s·efficiency. Default: H100 SXM, dense BF16 (NVIDIA's data sheet).

    `efficiency`: what matrix multiplications reach while they run. Llama 3 trained at 38 to 43 % of the peak, bubbles and
    exposed communication included (arXiv 2407.21783 table 4), so a half without them.
    """

    flops_per_s: float = 989.4e12
    efficiency: float = 0.5

    def __post_init__(self) -> None:
        if not self.flops_per_s > 0:
            raise UsageError(f"flops_per_s={self.flops_per_s:g}; want more than 0")
        if not 0 < self.efficiency <= 1:
            raise UsageError(f"efficiency={self.efficiency:g} is no share of the peak; want more than 0, at most 1")

    def duration_ns(self, flops: float) -> int:
        return round(flops * NS / (self.flops_per_s * self.efficiency))


class Step(NamedTuple):
    """Part of a pass: a computation, or a collective of the stage's groups of that kind."""

    name: str
    kind: str
    collective: str | None = None
    size_bytes: int = 0
    flops: int = 0


def iteration(job: Job, gpu: Gpu | None = None) -> tuple[Event, ...]:
    """All events, each after those it waits for. Lanes: `stage 0` …, and `stage 0>1` for what is sent between two."""
    build = _Build(job, gpu or Gpu())
    for one in all_stages(job.pp, job.micro_batches):
        build.run(one)
    for stage in range(job.pp):
        build.reduce_gradients(stage)
    return tuple(build.events)


def layer_steps(job: Job, layer: int, *, forward: bool) -> list[Step]:
    """A layer's part of one pass, recomputation included."""
    attention = _tensor_parallel(job, "attention", job.model.attention_flops(job.tokens, job.sequence))
    once = attention, _feed_forward(job, layer)
    if forward:
        return [step for part in once for step in part]
    again = layer_steps(job, layer, forward=True) if job.recompute else []
    return again + [step._replace(flops=BACKWARD * step.flops) for part in reversed(once) for step in part]


def head_step(job: Job, *, forward: bool) -> Step:
    flops = job.model.head_flops(job.tokens) // job.tp
    return Step("head", "compute", flops=flops if forward else BACKWARD * flops)


def _feed_forward(job: Job, layer: int) -> list[Step]:
    experts = job.model.experts
    if experts is None or not job.model.has_experts(layer):
        return _tensor_parallel(job, "dense", job.model.ffn_flops(job.tokens, layer))
    compute = Step("experts", "compute", flops=job.model.ffn_flops(job.own_tokens, layer))
    if job.ep == 1:
        return [compute]
    values = job.own_tokens * experts.top_k * job.model.hidden
    dispatch = Step("dispatch", "ep", "all_to_all", values * experts.dispatch_bytes)
    return [dispatch, compute, Step("combine", "ep", "all_to_all", values * experts.combine_bytes)]


def _tensor_parallel(job: Job, name: str, flops: int) -> list[Step]:
    """`flops` are of all tp ranks together."""
    compute = Step(name, "compute", flops=flops // job.tp)
    if job.tp == 1:
        return [compute]
    size_bytes = activation_bytes(job)
    if not job.sequence_parallel:
        return [compute, Step(f"{name} sum", "tp", "all_reduce", size_bytes)]
    return [
        Step(f"{name} gather", "tp", "all_gather", size_bytes), compute,
        Step(f"{name} sum", "tp", "reduce_scatter", size_bytes),
    ]


def activation_bytes(job: Job) -> int:
    """Of one micro-batch between two layers."""
    return job.tokens * job.model.hidden * BF16_BYTES


class _Build:
    def __init__(self, job: Job, gpu: Gpu) -> None:
        self.job, self.gpu = job, gpu
        self.events: list[Event] = []
        self._last: dict[str, int] = {}  # by lane: what is done one after the other there
        self._sent: dict[Pass, int] = {}  # by the pass that made it

    def run(self, one: Pass) -> None:
        arrived = self._sent.get(one.needs)
        name = f"{'F' if one.forward else 'B'}{one.micro_batch}"
        for step in self._steps(one):
            groups = self._groups[step.kind][one.stage]
            self._add(f"stage {one.stage}", step, f"{name} {step.name}", groups, () if arrived is None else (arrived,))
            arrived = None
        self._send(one, name)

    def reduce_gradients(self, stage: int) -> None:
        job = self.job
        for name, params, shards, groups in (
            ("parameters", job.dense_params(stage), job.tp, job.dp_groups),
            ("experts", job.routed_params(stage), job.ep, job.expert_dp_groups),
        ):
            for step in _gradient_steps(job, name, -(-params // shards)):
                if params and len(groups(stage)[0]) > 1:
                    self._add(f"stage {stage}", step, step.name, groups(stage))

    def _steps(self, one: Pass) -> Iterator[Step]:
        """Forward: the layers, and after the last one the output head; backward: the same from the end."""
        layers = self.job.layers(one.stage)
        head = [head_step(self.job, forward=one.forward)] if one.stage == self.job.pp - 1 else []
        yield from () if one.forward else head
        for layer in layers if one.forward else reversed(layers):
            for step in layer_steps(self.job, layer, forward=one.forward):
                yield step._replace(name=f"layer {layer} {step.name}")
        yield from head if one.forward else ()

    def _send(self, one: Pass, name: str) -> None:
        target = one.stage + (1 if one.forward else -1)
        if not 0 <= target < self.job.pp:
            return
        size_bytes = self.job.own_tokens * self.job.model.hidden * BF16_BYTES
        step = Step(f"{name} send", "pp", "send_recv", size_bytes)
        pairs, made = self._pairs[one.stage, target], self._last[f"stage {one.stage}"]
        self._sent[one] = self._add(f"stage {one.stage}>{target}", step, step.name, pairs, (made,))

    def _add(self, lane: str, step: Step, name: str, groups: Groups, after: tuple[int, ...] = ()) -> int:
        before = (self._last[lane],) if lane in self._last else ()
        self._last[lane] = len(self.events)
        self.events.append(Event(
            name=name, kind=step.kind, lane=lane, groups=groups, collective=step.collective, size_bytes=step.size_bytes,
            duration_ns=self.gpu.duration_ns(step.flops), after=tuple(sorted({*before, *after})),
        ))
        return len(self.events) - 1

    @cached_property
    def _groups(self) -> dict[str, list[Groups]]:
        makers: dict[str, Callable[[int], Groups]] = {
            "compute": self.job.singles, "tp": self.job.tp_groups, "ep": self.job.ep_groups,
        }
        return {kind: [groups(stage) for stage in range(self.job.pp)] for kind, groups in makers.items()}

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], Groups]:
        stages = range(self.job.pp)
        return {(s, t): self.job.pp_pairs(s, t) for s in stages for t in (s - 1, s + 1) if t in stages}


def _gradient_steps(job: Job, name: str, params: int) -> list[Step]:
    """`params` of one rank."""
    if not job.distributed_optimizer:
        return [Step(f"{name} sum", "dp", "all_reduce", params * GRADIENT_BYTES)]
    return [
        Step(f"{name} reduce", "dp", "reduce_scatter", params * GRADIENT_BYTES),
        Step(f"{name} gather", "dp", "all_gather", params * PARAMETER_BYTES),
    ]
