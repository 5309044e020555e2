"""1F1B: in which order a pipeline stage does the forward and backward passes of the micro-batches.

Stage s of P first does as many forward passes as there are stages after it, then one forward and one backward in turn, then the
backward passes that are left; so it holds activations of P - s micro-batches at most. With equal stages and free
communication an iteration takes (m + P - 1)·(forward + backward): a bubble of (P - 1)/m.
Source: Megatron-LM (arXiv 2104.04473) section 2.2.1; core/pipeline_parallel/schedules.py, without interleaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Pass(NamedTuple):
    """`forward` or backward pass of one micro-batch in one stage."""

    stage: int
    micro_batch: int
    forward: bool

    @property
    def needs(self) -> Pass:
        """The pass of the neighbouring stage whose result this one starts from."""
        return self._replace(stage=self.stage - 1 if self.forward else self.stage + 1)


def one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """The passes of one stage in the order it does them."""
    ahead = min(stages - stage - 1, micro_batches)
    forward = [Pass(stage, number, True) for number in range(micro_batches)]
    backward = [Pass(stage, number, False) for number in range(micro_batches)]
    steady = [one for pair in zip(forward[ahead:], backward, strict=False) for one in pair]
    return [*forward[:ahead], *steady, *backward[micro_batches - ahead:]]


def all_stages(stages: int, micro_batches: int) -> Iterator[Pass]:
    """The passes of all stages, each stage's in its order, each after the one it needs."""
    waiting = [one_f_one_b(stage, stages, micro_batches)[::-1] for stage in range(stages)]
    done: set[Pass] = set()
    while any(waiting):
        for left in waiting:
            while left and _ready(left[-1], stages, done):
                done.add(left[-1])
                yield left.pop()


def _ready(one: Pass, stages: int, done: set[Pass]) -> bool:
    return not 0 <= one.needs.stage < stages or one.needs in done
