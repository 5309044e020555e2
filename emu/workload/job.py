"""A training job: a model, and how its work is spread over ranks in Megatron's order.

tp is innermost, then dp, then pp: rank = tp + TP·(dp + DP·pp) (Megatron's tp-cp-ep-dp-pp with one context-parallel rank).
Experts have an order of their own in the same TP·DP ranks of a stage: EP consecutive ranks have all experts between them, and
those with the same experts are EP apart (Megatron's parallel folding with expert tensor parallelism 1; with TP = 1 the EP
group lies inside the DP group, as DeepSeek trains).
With TP = GPUs per server, the peers of a rank in DP and PP have the same place in their servers, so the same rail.
Source: Megatron-LM core/parallel_state.py (initialize_model_parallel); domain facts, parallelism traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import UsageError
from emu.workload.model import Model

Groups = tuple[tuple[int, ...], ...]
MOST_RANKS, MOST_LAYER_PASSES = 1 << 20, 1 << 20  # beyond is a slip of the hand; an event is 0.4 kB


@dataclass(frozen=True, kw_only=True)
class Job:
    """Sizes of the four parallelisms, `micro_batches` of `micro_batch` sequences of `sequence` tokens per iteration and dp rank.

    sequence_parallel: tensor parallelism as reduce-scatter and all-gather, activations between them split over the tp ranks.
    distributed_optimizer: gradients by reduce-scatter, parameters by all-gather; else gradients by AllReduce.
    recompute: the backward pass of a layer computes its forward pass once more.
    UsageError names what doesn't fit and what would.
    """

    model: Model
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    micro_batches: int = 1
    micro_batch: int = 1
    sequence: int = 4096
    gpus_per_server: int = 8
    sequence_parallel: bool = True
    distributed_optimizer: bool = True
    recompute: bool = False

    def __post_init__(self) -> None:
        for field in ("tp", "pp", "dp", "ep", "micro_batches", "micro_batch", "sequence", "gpus_per_server"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field}={getattr(self, field)}; want at least 1")
        _check_extent(self)
        _check_stages_and_servers(self)
        _check_experts(self)
        if self.sequence_parallel and self.sequence % self.tp:
            raise UsageError(f"sequence={self.sequence} tokens can't be split evenly over tp={self.tp}; want a multiple of it")

    @property
    def ranks(self) -> int:
        return self.tp * self.dp * self.pp

    @property
    def stage_ranks(self) -> int:
        return self.tp * self.dp

    @property
    def expert_dp(self) -> int:
        """Ranks of a stage that have the same experts."""
        return self.stage_ranks // self.ep

    @property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.micro_batch * self.sequence

    @property
    def own_tokens(self) -> int:
        """Tokens of a micro-batch that a rank keeps between tensor-parallel parts."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens

    def layers(self, stage: int) -> range:
        """The layers of a pipeline stage; stages differ by one layer at most, the last ones, with the output head, have fewer."""
        share, longer = divmod(self.model.layers, self.pp)
        first = stage * share + min(stage, longer)
        return range(first, first + share + (stage < longer))

    def rank(self, tp: int, dp: int, pp: int) -> int:
        return tp + self.tp * (dp + self.dp * pp)

    def stage(self, pp: int) -> range:
        """The ranks of a pipeline stage."""
        return range(pp * self.stage_ranks, (pp + 1) * self.stage_ranks)

    def singles(self, pp: int) -> Groups:
        return tuple((rank,) for rank in self.stage(pp))

    def tp_groups(self, pp: int) -> Groups:
        return _consecutive(self.stage(pp), self.tp)

    def dp_groups(self, pp: int) -> Groups:
        return _apart(self.stage(pp), self.tp)

    def ep_groups(self, pp: int) -> Groups:
        return _consecutive(self.stage(pp), self.ep)

    def expert_dp_groups(self, pp: int) -> Groups:
        return _apart(self.stage(pp), self.ep)

    def pp_pairs(self, source: int, target: int) -> Groups:
        """(sender, receiver) of each rank of stage `source` and the one with the same tp and dp in stage `target`."""
        return tuple(zip(self.stage(source), self.stage(target), strict=True))

    def dense_params(self, stage: int) -> int:
        """Parameters of a stage that its dp ranks share, before tp splits them."""
        model = self.model
        ends = model.embedding_params * (stage == 0) + (model.embedding_params + model.hidden) * (stage == self.pp - 1)
        return ends + sum(model.dense_params(layer) for layer in self.layers(stage))

    def routed_params(self, stage: int) -> int:
        """Parameters of a stage's experts, before ep splits them."""
        return sum(self.model.routed_params(layer) for layer in self.layers(stage))


def _consecutive(ranks: range, size: int) -> Groups:
    return tuple(tuple(ranks[first:first + size]) for first in range(0, len(ranks), size))


def _apart(ranks: range, distance: int) -> Groups:
    return tuple(tuple(ranks[first::distance]) for first in range(distance))


def _check_extent(job: Job) -> None:
    if job.ranks > MOST_RANKS:
        raise UsageError(f"tp={job.tp} x pp={job.pp} x dp={job.dp} = {job.ranks} ranks; want at most {MOST_RANKS}")
    if job.micro_batches * job.model.layers > MOST_LAYER_PASSES:
        raise UsageError(f"micro_batches={job.micro_batches} with {job.model.layers} layers; "
                         f"want at most {MOST_LAYER_PASSES // job.model.layers}")


def _check_stages_and_servers(job: Job) -> None:
    if job.pp > job.model.layers:
        raise UsageError(f"pp={job.pp} stages but {job.model.name} has {job.model.layers} layers; want at most one stage a layer")
    if job.gpus_per_server % job.tp:
        raise UsageError(
            f"tp={job.tp} does not fit into servers of {job.gpus_per_server} GPUs: tensor parallelism stays inside the scale-up "
            f"domain; want one of {_divisors(job.gpus_per_server)}"
        )
    if job.ranks > job.gpus_per_server and job.ranks % job.gpus_per_server:
        raise UsageError(
            f"tp={job.tp} x pp={job.pp} x dp={job.dp} = {job.ranks} ranks do not fill servers of {job.gpus_per_server} GPUs; "
            "want a multiple"
        )


def _check_experts(job: Job) -> None:
    if job.ep == 1:
        return
    if job.model.experts is None:
        raise UsageError(f"ep={job.ep} but {job.model.name} has no experts; want ep=1")
    if job.model.experts.count % job.ep:
        raise UsageError(f"ep={job.ep} can't share {job.model.experts.count} experts evenly; want one of "
                         f"{_divisors(job.model.experts.count)}")
    if job.stage_ranks % job.ep:
        raise UsageError(f"ep={job.ep} does not divide the tp={job.tp} x dp={job.dp} = {job.stage_ranks} ranks of a stage; "
                         f"want one of {_divisors(job.stage_ranks)}")
    if job.tp > 1 and not job.sequence_parallel:
        raise UsageError(f"ep={job.ep} with tp={job.tp} sends every token {job.tp} times; want sequence_parallel=True")


def _divisors(number: int) -> str:
    return ", ".join(str(divisor) for divisor in range(1, number + 1) if number % divisor == 0)
