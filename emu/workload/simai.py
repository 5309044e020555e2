"""SimAI's workload files: what one rank computes and which collectives it takes part in, a layer a line.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 0 …
    <number of layers>
    <name> -1 then three times <compute ns> <collective> <bytes> (forward, input gradient, weight gradient), <update>

A collective without a suffix belongs to the tensor-parallel group, in the weight gradient to the data-parallel one; _EP is
the expert-parallel group, _DP_EP those that have the same experts. Ranks in Megatron's order, the ep ranks next to each other
in dp. The file is one stage's; what it sends to its neighbours is only in the header: pp_comm bytes, ga·vpp times each way.
Refused, because it would be left out unseen: other parallelization policies, checkpoints.
Source: aliyun/SimAI astra-sim-alibabacloud/astra-sim/workload/Workload.cc (initialize_workload), Layer.cc (pipeline), Sys.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from emu.errors import UsageError
from emu.workload.event import Event
from emu.workload.job import Groups
from emu.workload.text import Line, read_lines, shown

WHAT = "a SimAI workload file (policy and sizes, number of layers, a line of 12 columns a layer)"
POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
SIZES = ("model_parallel_NPU_group", "ep", "pp", "vpp", "ga", "all_gpus")
OTHERS = ("checkpoints", "checkpoint_initiates", "pp_comm")
COLUMNS = 12
MOST_GPUS = 1 << 20  # a slip of the hand, not a cluster
COLLECTIVES = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all",
}
GROUPS = {"": "tp", "_EP": "ep", "_DP_EP": "dp_ep"}
NAMES = {name + suffix: (kind, group) for name, kind in COLLECTIVES.items() for suffix, group in GROUPS.items()}


class Phase(NamedTuple):
    """Computes for `compute_ns`, then takes part in `collective` (None: in none) of its `group`: tp, ep, dp or dp_ep."""

    compute_ns: int
    collective: str | None
    group: str | None
    size_bytes: int


class Layer(NamedTuple):
    name: str
    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase


@dataclass(frozen=True, kw_only=True)
class SimaiWorkload:
    """`ga` micro-batches, `vpp` model chunks a stage. pp_comm_bytes: of one activation between two stages."""

    tp: int
    ep: int
    pp: int
    vpp: int
    ga: int
    gpus: int
    pp_comm_bytes: int
    layers: tuple[Layer, ...]

    @property
    def dp(self) -> int:
        return self.gpus // (self.tp * self.pp)

    @property
    def pp_sent_bytes(self) -> int:
        """What a rank sends to the next and the previous stage in an iteration, as SimAI reckons it; 0 with one stage."""
        return 2 * self.vpp * self.ga * self.pp_comm_bytes if self.pp > 1 else 0

    def group(self, name: str) -> tuple[int, ...]:
        """Rank 0's group: tp, ep, dp or dp_ep."""
        last = {"tp": self.tp, "ep": self.tp * self.ep, "dp": self.tp * self.dp, "dp_ep": self.tp * self.dp}[name]
        step = {"tp": 1, "ep": self.tp, "dp": self.tp, "dp_ep": self.tp * self.ep}[name]
        return tuple(range(0, last, step))

    def groups(self, name: str) -> Groups:
        """That of every rank of the stage: tp, ep, dp or dp_ep."""
        first, stage = self.group(name), self.tp * self.dp
        taken: set[int] = set()
        groups = []
        for rank in range(stage):
            if rank not in taken:
                groups.append(tuple(rank + member for member in first))
                taken.update(groups[-1])
        return tuple(groups)


def read_simai(path: str) -> SimaiWorkload:
    """UsageError with file and line: what SimAI refuses or reads wrongly, what is refused here."""
    lines = read_lines(path, WHAT)
    header = _need(next(lines, None), path)
    sizes = _header(header)
    count_line = _need(next(lines, None), path)
    count = count_line.whole("the number of layers", " ".join(count_line.words), at_least=1)
    layers = tuple(_layer(line) for line in lines)
    if len(layers) != count:
        raise count_line.refused(f"{count} layers announced but {len(layers)} follow; want {len(layers)}")
    tp, ep, pp, vpp, ga, gpus = (sizes[name] for name in SIZES)
    return SimaiWorkload(
        tp=tp, ep=ep, pp=pp, vpp=vpp, ga=ga, gpus=gpus, pp_comm_bytes=sizes.get("pp_comm", 0), layers=layers
    )


def simai_events(workload: SimaiWorkload, *, everybody: bool = False) -> tuple[Event, ...]:
    """Rank 0's iteration: forward through all lines, then back through them, input before weight gradient.

    `groups` has rank 0's group alone, or those of all ranks of its stage, which do the same (`everybody`). Collectives of
    weight gradients go on beside the compute, one after the other.
    """
    events: list[Event] = []
    ends: dict[str, int] = {}  # by lane, its last event
    main = "all ranks" if everybody else "rank 0"
    names = {phase.group for layer in workload.layers for phase in layer[1:] if phase.group}
    groups = {name: workload.groups(name) if everybody else (workload.group(name),) for name in names}
    alone = tuple((rank,) for rank in range(workload.tp * workload.dp)) if everybody else ((0,),)

    def add(event: Event) -> None:
        before = {ends[lane] for lane in (main, event.lane) if lane in ends}
        ends[event.lane] = len(events)
        events.append(event._replace(after=tuple(sorted(before))))

    for name, phase, beside in _in_order(workload.layers):
        if phase.compute_ns:
            add(Event(name, "compute", main, alone, duration_ns=phase.compute_ns))
        if phase.size_bytes and len(groups[phase.group][0]) > 1:
            kind, lane = phase.group.removesuffix("_ep"), f"{main} gradients" if beside else main
            add(Event(f"{name} {phase.collective}", kind, lane, groups[phase.group], phase.collective, phase.size_bytes))
    return tuple(events)


def _in_order(layers: tuple[Layer, ...]) -> Iterator[tuple[str, Phase, bool]]:
    """Name, phase, and whether its collective runs beside what follows."""
    for layer in layers:
        yield f"{layer.name} forward", layer.forward, False
    for layer in reversed(layers):
        yield f"{layer.name} input gradient", layer.input_gradient, False
        yield f"{layer.name} weight gradient", layer.weight_gradient, True


def _need(line: Line | None, path: str) -> Line:
    if line is None:
        raise UsageError(f"{path}: ends before its layers; want {WHAT}")
    return line


def _header(line: Line) -> dict[str, int]:
    policy, *rest = line.words
    if policy != POLICY:
        raise line.refused(f"parallelization policy {shown(policy)}; want {POLICY}")
    sizes = _pairs(line, rest)
    for name in SIZES:
        if name not in sizes:
            raise line.refused(f"no {name}; want `{name}: <number>`")
    for name in ("checkpoints", "checkpoint_initiates"):
        if sizes.get(name):
            raise line.refused(f"{name} {sizes[name]}: recomputation is not read; want 0")
    _check_sizes(line, sizes)
    return sizes


def _pairs(line: Line, words: list[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    rest = iter(words)
    for word in rest:
        name = word.removesuffix(":")
        if name not in (*SIZES, *OTHERS):
            raise line.refused(f"unknown size {shown(word)}; want {', '.join((*SIZES, *OTHERS))}")
        if name in sizes:
            raise line.refused(f"{name} for the second time; want it once")
        sizes[name] = line.whole(name, next(rest, ""), at_least=1 if name in SIZES else 0)
    return sizes


def _check_sizes(line: Line, sizes: dict[str, int]) -> None:
    tp, ep, pp, _, _, gpus = (sizes[name] for name in SIZES)
    if gpus > MOST_GPUS:
        raise line.refused(f"all_gpus {gpus}; want at most {MOST_GPUS}")
    if gpus % (tp * pp):
        raise line.refused(f"all_gpus {gpus} is no multiple of tp {tp} x pp {pp}; want whole data-parallel replicas")
    if gpus // (tp * pp) % ep:
        raise line.refused(f"ep {ep} does not divide the {gpus // (tp * pp)} data-parallel replicas; want a divisor")
    if (pp > 1) != bool(sizes.get("pp_comm")):
        raise line.refused(f"pp {pp} with pp_comm {sizes.get('pp_comm', 0)}; want its bytes with more than one stage, else 0")


def _layer(line: Line) -> Layer:
    if len(line.words) != COLUMNS:
        raise line.refused(f"{len(line.words)} columns; want {COLUMNS}")
    name, dependency, *columns, update = line.words
    if dependency != "-1":
        raise line.refused(f"dependency {shown(dependency)}; want -1, the layers in their order")
    line.whole("the update time", update)
    forward, input_gradient = _phase(line, "forward", columns[:3]), _phase(line, "input gradient", columns[3:6])
    weight_gradient = _phase(line, "weight gradient", columns[6:])
    if weight_gradient.group == "tp":  # no suffix: here it means the replicas
        weight_gradient = weight_gradient._replace(group="dp")
    return Layer(name, forward, input_gradient, weight_gradient)


def _phase(line: Line, name: str, columns: list[str]) -> Phase:
    compute_ns = line.whole(f"{name}'s compute time", columns[0])
    size_bytes = line.whole(f"{name}'s bytes", columns[2])
    if columns[1] == "NONE":
        if size_bytes:
            raise line.refused(f"{name}: NONE with {size_bytes} bytes; want 0")
        return Phase(compute_ns, None, None, 0)
    if columns[1] not in NAMES:
        raise line.refused(f"{name}: unknown collective {shown(columns[1])}; want NONE, {', '.join(NAMES)}")
    return Phase(compute_ns, *NAMES[columns[1]], size_bytes)
