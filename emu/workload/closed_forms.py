"""What an iteration's traffic must sum to, by formula: bytes that all ranks together send, by kind.

With b·s tokens of h values in 2 bytes, L layers, m micro-batches, T, P, D, E ranks:

    tp   per rank   4 AllReduces (2 forward, 2 backward; 6 if recomputed) a dense layer, 2 (3) a layer with experts
                    x m·L/P x b·s·h·2 x 2(T - 1)/T; a reduce-scatter and all-gather pair has an AllReduce's bytes
    pp   per rank and boundary   2 x m x b·s·h·2 (/T with sequence parallelism), once
    dp   per rank   parameters/(T·P) x (4 + 2) x (D - 1)/D; as AllReduce 4 x 2(D - 1)/D
                    experts' parameters/(E·P) likewise over X = T·D/E ranks
    ep   per rank   2 dispatches and 2 combines (3 if recomputed) a layer with experts
                    x m·L/P x b·s/T·topk·h·bytes x (E - 1)/E

Sums over all ranks need no average stage. Nothing here looks at the events; a test holds both against each other.
Source: domain facts, parallelism traffic; emu/workload/iteration.py says what is not counted.
"""

from __future__ import annotations

from fractions import Fraction

from emu.workload.iteration import GRADIENT_BYTES, PARAMETER_BYTES
from emu.workload.job import Job
from emu.workload.model import BF16_BYTES


def closed_forms(job: Job) -> dict[str, Fraction]:
    """Exact where T and E divide the parameters of every stage, as they do for the named models; else short by a rounding."""
    return {"tp": _tp(job), "pp": _pp(job), "dp": _dp(job), "ep": _ep(job)}


def _expert_layers(job: Job) -> int:
    return max(0, job.model.layers - job.model.experts.dense_layers) if job.model.experts else 0


def _tp(job: Job) -> Fraction:
    passes = 3 if job.recompute else 2
    parts = 2 * job.model.layers - _expert_layers(job)
    size_bytes = job.tokens * job.model.hidden * BF16_BYTES
    return job.stage_ranks * passes * parts * job.micro_batches * size_bytes * Fraction(2 * (job.tp - 1), job.tp)


def _pp(job: Job) -> Fraction:
    size_bytes = job.tokens * job.model.hidden * BF16_BYTES
    split = job.tp if job.sequence_parallel else 1
    return Fraction(2 * job.micro_batches * (job.pp - 1) * job.stage_ranks * size_bytes, split)


def _dp(job: Job) -> Fraction:
    routed = sum(job.model.routed_params(layer) for layer in range(job.model.layers))
    replicas, per_expert = job.dp, Fraction(job.stage_ranks, job.ep)
    return ((job.model.params - routed) * (replicas - 1) + routed * (per_expert - 1)) * _bytes_per_parameter(job)


def _bytes_per_parameter(job: Job) -> int:
    return GRADIENT_BYTES + PARAMETER_BYTES if job.distributed_optimizer else 2 * GRADIENT_BYTES


def _ep(job: Job) -> Fraction:
    experts = job.model.experts
    if experts is None:
        return Fraction(0)
    passes = 3 if job.recompute else 2
    values = Fraction(job.tokens, job.tp) * experts.top_k * job.model.hidden
    round_trips = job.stage_ranks * _expert_layers(job) * job.micro_batches * passes
    return round_trips * values * (experts.dispatch_bytes + experts.combine_bytes) * Fraction(job.ep - 1, job.ep)
