"""Promises of a training iteration: Megatron's groups, 1F1B, and the bytes that the closed forms give."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collectives.formulas import bus_factor
from emu.errors import UsageError
from emu.workload.closed_forms import closed_forms
from emu.workload.event import sent_by_kind, sent_per_rank, sent_share
from emu.workload.iteration import Gpu, iteration
from emu.workload.job import Job
from emu.workload.links import Links, crosses_servers, load, sent_by_link
from emu.workload.model import DEEPSEEK_V3, LLAMA3_70B, MODELS, Experts, Model, model_named
from emu.workload.pipeline import all_stages, one_f_one_b
from emu.workload.schedules import schedules
from emu.workload.timeline import busy_ns, end_ns, timeline

SMALL = Model(
    name="small", layers=5, hidden=16, vocab=64, heads=2, qk_dim=8, v_dim=8, ffn=32, attention_weights=4 * 16 * 16,
    small_weights=32,
)
SMALL_MOE = replace(SMALL, name="small-moe", experts=Experts(
    count=8, top_k=2, shared=1, ffn=8, dense_layers=1, dispatch_bytes=1, combine_bytes=2
))
LLAMA_64 = Job(model=LLAMA3_70B, tp=8, pp=4, dp=2, micro_batches=16, sequence=8192)
DEEPSEEK_2048 = Job(model=DEEPSEEK_V3, pp=16, dp=128, ep=64, micro_batches=16)
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    model = draw(st.sampled_from([SMALL, SMALL_MOE]))
    tp, dp = draw(POWERS), draw(st.sampled_from([1, 2, 3, 4, 8]))
    shared_by = [ep for ep in (1, 2, 4, 8) if model.experts and tp * dp % ep == 0] or [1]
    ep = draw(st.sampled_from(shared_by))
    return Job(
        model=model, tp=tp, pp=draw(st.integers(1, model.layers)), dp=dp, ep=ep, micro_batches=draw(st.integers(1, 6)),
        micro_batch=draw(st.integers(1, 2)), sequence=8 * draw(st.integers(1, 4)), gpus_per_server=draw(st.just(tp)),
        sequence_parallel=ep > 1 or draw(st.booleans()), distributed_optimizer=draw(st.booleans()), recompute=draw(st.booleans()),
    )


def refusal(**changes: object) -> str:
    with pytest.raises(UsageError) as refused:
        Job(**{"model": LLAMA3_70B, **changes})
    assert "want" in str(refused.value) and "\n" not in str(refused.value), refused.value
    return str(refused.value)


@pytest.mark.parametrize(("name", "params"), [("llama3-70b", 70_553_706_496), ("deepseek-v3", 671_026_419_200)])
def test_a_named_model_has_the_parameters_its_makers_state(name, params):
    assert model_named(name).params == params


def test_deepseek_v3_uses_37_billion_parameters_for_a_token():
    used = sum(DEEPSEEK_V3.dense_params(layer) + 8 * DEEPSEEK_V3.routed_params(layer) // 256 for layer in range(61))
    assert used + DEEPSEEK_V3.embedding_params == pytest.approx(36.6e9, rel=0.002)  # DeepSeek-V3's README_WEIGHTS


def test_an_unknown_model_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="'lama3-70b'.*did you mean 'llama3-70b'.*deepseek-v3"):
        model_named("lama3-70b")


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_forward_flops_are_two_for_each_weight_that_a_token_meets_and_the_scores(model):
    tokens = sequence = 4096
    flops = model.head_flops(tokens) + sum(
        model.attention_flops(tokens, sequence) + model.ffn_flops(tokens, layer) for layer in range(model.layers)
    )
    top_k, count = (model.experts.top_k, model.experts.count) if model.experts else (0, 1)
    met = model.embedding_params + sum(
        model.dense_params(layer) - model.small_weights + model.routed_params(layer) * top_k // count
        for layer in range(model.layers)
    )
    scores = sequence * model.heads * (model.qk_dim + model.v_dim) * model.layers
    assert flops / tokens == pytest.approx(2 * met + scores, rel=1e-5)


def test_groups_are_those_of_megatrons_own_example():
    """core/parallel_state.py, initialize_model_parallel: 16 GPUs, tp 2, pp 4."""
    job = Job(model=SMALL, tp=2, pp=4, dp=2, gpus_per_server=8)
    assert [group for stage in range(4) for group in job.tp_groups(stage)] == [(rank, rank + 1) for rank in range(0, 16, 2)]
    assert [group for stage in range(4) for group in job.dp_groups(stage)] == [
        (0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)
    ]
    assert job.pp_pairs(0, 1) == ((0, 4), (1, 5), (2, 6), (3, 7)) and job.pp_pairs(3, 2)[1] == (13, 9)
    assert [job.rank(1, 0, pp) for pp in range(4)] == [1, 5, 9, 13]


def test_experts_are_shared_by_neighbours_and_copied_ep_apart():
    job = Job(model=SMALL_MOE, pp=2, dp=8, ep=4)
    assert job.ep_groups(1) == ((8, 9, 10, 11), (12, 13, 14, 15))
    assert job.expert_dp_groups(1) == ((8, 12), (9, 13), (10, 14), (11, 15))


@pytest.mark.parametrize(("servers_of", "same"), [(8, True), (16, False)])
def test_peers_in_dp_and_pp_are_on_one_rail_if_tp_fills_the_server(servers_of, same):
    job = replace(LLAMA_64, gpus_per_server=servers_of)
    groups = [*job.dp_groups(0), *job.pp_pairs(0, 1)]
    assert all(len({rank % servers_of for rank in group}) == 1 for group in groups) is same


@pytest.mark.parametrize(("job", "total"), [
    (LLAMA_64, {"tp": 19_241_453_486_080, "pp": 25_769_803_776, "dp": 423_322_238_976, "ep": 0}),
    (DEEPSEEK_2048, {"tp": 0, "pp": 3_607_772_528_640, "dp": 16_967_100_693_504, "ep": 164_785_010_245_632}),
], ids=["llama3-70b on 64", "deepseek-v3 on 2048"])
def test_a_named_models_bytes_are_those_worked_out_by_hand(job, total):
    assert sent_by_kind(iteration(job)) == closed_forms(job) == total


def test_bytes_of_a_rank_are_those_of_the_table_of_parallelism_traffic():
    """The table's forms, per rank, written out for stage 1 of 4 of Llama 3 70B without sequence parallelism."""
    job = replace(LLAMA_64, sequence_parallel=False, distributed_optimizer=False)
    activation, mine = 8192 * 8192 * 2, [event for event in iteration(job) if event.lane in ("stage 1", "stage 1>2", "stage 1>0")]
    stage_params = 20 * 855_654_400
    assert sent_per_rank(mine) == {
        "tp": 4 * 20 * 16 * activation * Fraction(2 * 7, 8),
        "pp": 2 * 16 * activation,
        "dp": Fraction(stage_params, 8) * 4 * Fraction(2 * 1, 2),
        "ep": 0,
    }


@given(jobs())
@settings(max_examples=60, deadline=None)
def test_any_jobs_bytes_are_the_closed_forms(job):
    events = iteration(job)
    assert sent_by_kind(events) == closed_forms(job)
    links = sent_by_link(events, job.gpus_per_server)
    assert {kind: up + out for kind, (up, out) in links.items()} == closed_forms(job), "a byte is on one kind of link"
    assert links["tp"][1] == 0, "tensor parallelism never leaves the scale-up domain"


@given(jobs())
@settings(max_examples=30, deadline=None)
def test_events_come_after_those_they_wait_for_and_a_lane_does_one_thing_at_a_time(job):
    events = iteration(job)
    assert all(before < index for index, event in enumerate(events) for before in event.after)
    lanes = defaultdict(list)
    for bar in timeline(events, lambda event: 1 + event.duration_ns):
        lanes[bar.lane].append(bar)
    for bars in lanes.values():
        assert all(one.end_ns <= other.start_ns for one, other in zip(bars, bars[1:], strict=False)), bars[0].lane


@given(st.integers(1, 8), st.integers(1, 12))
def test_1f1b_does_every_pass_once_and_holds_at_most_as_many_micro_batches_as_stages_are_left(stages, micro_batches):
    for stage in range(stages):
        passes, held, most = one_f_one_b(stage, stages, micro_batches), 0, 0
        assert Counter((one.micro_batch, one.forward) for one in passes) == Counter(
            (number, forward) for number in range(micro_batches) for forward in (True, False)
        )
        for one in passes:
            held += 1 if one.forward else -1
            most = max(most, held)
        assert most == min(stages - stage, micro_batches), f"stage {stage} of {stages} holds {most}"
    assert len(list(all_stages(stages, micro_batches))) == 2 * stages * micro_batches


def test_the_order_of_1f1b_on_an_example():
    names = [f"{'F' if one.forward else 'B'}{one.micro_batch}" for one in one_f_one_b(1, 4, 4)]
    assert names == ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"]


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (4, 4), (4, 16)])
def test_equal_stages_with_free_communication_have_the_bubble_of_the_paper(stages, micro_batches):
    """(m + P - 1)·(forward + backward), Megatron-LM section 2.2.1. An output head of next to no FLOPs keeps stages equal."""
    model = replace(SMALL, layers=4 * stages, vocab=1, hidden=1 << 12, ffn=1 << 14, attention_weights=1 << 26)
    job = Job(model=model, pp=stages, micro_batches=micro_batches, gpus_per_server=1)
    bars = timeline(iteration(job), lambda event: event.duration_ns)
    one_pass = sum(busy_ns(bars, "stage 0").values()) / micro_batches
    assert end_ns(bars) == pytest.approx((micro_batches + stages - 1) * one_pass, rel=0.001)


def test_computations_take_flops_over_rate_and_twice_that_backward():
    events = iteration(Job(model=SMALL, sequence=64), Gpu(flops_per_s=1e9, efficiency=0.25))
    flops = 64 * (2 * 1024 + 64 * 2 * 16)
    got = {event.name: event.duration_ns for event in events}
    assert got["F0 layer 0 attention"] == flops * 4 and got["B0 layer 0 attention"] == flops * 8, got


def test_tensor_parallelism_divides_the_compute_of_a_layer_and_recomputation_adds_a_forward_pass():
    def compute_ns(**changes):
        events = iteration(Job(model=LLAMA3_70B, sequence=4096, **changes))
        return sum(event.duration_ns for event in events if event.kind == "compute")

    assert compute_ns() == pytest.approx(8 * compute_ns(tp=8), rel=1e-6)
    without_head = compute_ns() - 3 * Gpu().duration_ns(LLAMA3_70B.head_flops(4096))
    assert compute_ns(recompute=True) - compute_ns() == pytest.approx(without_head / 3, rel=1e-6)


def test_a_layer_with_experts_is_passed_backwards_in_reverse_and_each_stage_starts_from_what_it_is_sent():
    job = Job(model=replace(SMALL_MOE, layers=2), tp=2, pp=2, dp=2, ep=4, sequence=8)
    events = iteration(job)
    last = [(event.name, [events[before].name for before in event.after]) for event in events if event.lane == "stage 1"]
    forward = ["attention gather", "attention", "attention sum", "dispatch", "experts", "combine"]
    backward = ["dispatch", "experts", "combine", "attention gather", "attention", "attention sum"]
    names = [f"F0 layer 1 {name}" for name in forward] + ["F0 head", "B0 head"] + [f"B0 layer 1 {name}" for name in backward]
    names += ["parameters reduce", "parameters gather"]  # 4 ranks have 2 copies of the rest, each expert once
    assert last == [(names[0], ["F0 send"]), *[(name, [before]) for before, name in zip(names, names[1:], strict=False)]]
    first = next(event for event in events if event.name == "B0 layer 0 dense gather")
    assert [events[before].name for before in first.after] == ["F0 layer 0 dense sum", "B0 send"]
    sends = [(event.lane, [events[before].name for before in event.after]) for event in events if event.kind == "pp"]
    assert sends == [("stage 0>1", ["F0 layer 0 dense sum"]), ("stage 1>0", ["B0 layer 1 attention sum"])]


def test_a_rank_computes_experts_for_its_own_tokens():
    def experts_ns(tp):
        job = Job(model=SMALL_MOE, tp=tp, dp=8 // tp, ep=8, sequence=1024)
        return {event.duration_ns for event in iteration(job, Gpu(flops_per_s=1e9)) if event.name == "F0 layer 1 experts"}

    assert experts_ns(1) == {8 * duration_ns for duration_ns in experts_ns(8)}


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
def test_a_rank_sends_nccl_tests_bus_factor(collective):
    assert [float(sent_share(collective, ranks)) for ranks in (2, 3, 64)] == pytest.approx(
        [bus_factor(collective, ranks) for ranks in (2, 3, 64)]
    )


def test_a_communication_takes_what_its_busiest_link_takes():
    links = Links(scale_up_bps=80, nic_bps=8, gpus_per_server=4)
    cases = {
        ("all_reduce", (0, 1, 2, 3)): 1.5 / 10,  # bytes over bytes/s
        ("all_reduce", (0, 4)): 1.0,
        ("all_gather", (0, 1, 4, 5)): 0.75 / 2,  # two NICs share what leaves a server
        ("all_to_all", (0, 1, 4, 5)): 0.5,
        ("send_recv", (0, 5)): 1.0,
        ("send_recv", (0, 1)): 1 / 10,
    }
    event = iteration(Job(model=SMALL))[0]._replace(size_bytes=1000)
    for (collective, group), seconds in cases.items():
        got = links(event._replace(collective=collective, groups=(group,)))
        assert got == round(1000 * seconds * 1e9), f"{collective} over {group}: {got / 1e9} s, want {1000 * seconds} s"


@pytest.mark.parametrize("job", [
    replace(LLAMA_64, sequence=64, micro_batches=1), Job(model=SMALL_MOE, dp=16, ep=8, pp=2, sequence=64, gpus_per_server=4),
    Job(model=SMALL_MOE, dp=16, ep=4, sequence=64, gpus_per_server=8, distributed_optimizer=False),
], ids=["llama3-70b", "experts over servers", "experts inside servers"])
def test_scale_out_events_become_schedules_with_the_same_bytes_on_the_same_links(job):
    events = {(event.collective, event.groups): event for event in iteration(job) if crosses_servers(event, job.gpus_per_server)}
    assert {event.kind for event in events.values()} >= {"dp"}
    for event in events.values():
        small = event._replace(size_bytes=len(event.groups[0]) * 1000)
        for placed in schedules(small, job.gpus_per_server):
            want = load(event.collective, placed.ranks, job.gpus_per_server)
            moved = Counter()
            for transfer in placed.schedule.transfers:
                moved[transfer.link] += transfer.size_bytes
                source, target = (placed.ranks[end] for end in (transfer.source, transfer.target))
                inside = source // job.gpus_per_server == target // job.gpus_per_server
                assert inside is (transfer.rails is None), f"{event.name}: {source}->{target} over {transfer.link}"
                if transfer.rails and event.collective != "all_to_all":
                    assert placed.gpus[transfer.rails[1]] in {rank % job.gpus_per_server for rank in placed.ranks}
            got = moved["scale_up"], moved["scale_out"]
            assert got == (want.scale_up * small.size_bytes, want.scale_out * small.size_bytes), event.name


@pytest.mark.parametrize(("pair", "gpus", "rails"), [((0, 8), (0,), (0, 0)), ((3, 12), (3, 4), (0, 1)), ((1, 6), (1, 6), None)])
def test_what_a_stage_sends_is_one_transfer_from_the_senders_nic_to_the_receivers(pair, gpus, rails):
    event = iteration(Job(model=SMALL, pp=2))[0]._replace(collective="send_recv", size_bytes=77, groups=(pair,))
    (placed,) = schedules(event, 8)
    (transfer,) = placed.schedule.transfers
    assert (placed.ranks, placed.gpus, transfer.rails, transfer.size_bytes) == (pair, gpus, rails, 77)
    assert (transfer.source, transfer.target) == (0, 1)


def test_a_link_that_carries_nothing_has_no_load():
    assert load("all_reduce", (0, 4), 4)[:3] == (0, 2, 0) and load("all_reduce", (0, 1), 4)[1::2] == (0, 0)


def test_an_allreduce_may_use_any_algorithm_for_allreduce_and_no_other():
    job = Job(model=SMALL, dp=4, gpus_per_server=1, distributed_optimizer=False)
    event = next(event for event in iteration(job) if event.kind == "dp")
    assert [placed.schedule.name for placed in schedules(event, 1, "double_tree")] == ["double_tree"]
    with pytest.raises(UsageError, match="all_reduce, all_gather is all_gather; want"):
        list(schedules(event, 1, "all_gather"))
    with pytest.raises(UsageError, match="is a computation; want an event that sends"):
        list(schedules(iteration(job)[0], 1))


def test_a_group_with_different_gpus_in_its_servers_is_refused():
    event = iteration(Job(model=SMALL, dp=2))[0]._replace(collective="all_gather", groups=((0, 1, 2, 3, 8, 9),))
    with pytest.raises(UsageError, match="not the same GPUs in each server of 8; want"):
        list(schedules(event, 8))


@pytest.mark.parametrize(("changes", "words"), [
    ({"tp": 0}, "tp=0"),
    ({"tp": 3}, "tp=3 does not fit into servers of 8 GPUs"),
    ({"pp": 81}, "pp=81 stages but llama3-70b has 80 layers"),
    ({"dp": 12}, "= 12 ranks do not fill servers of 8 GPUs"),
    ({"ep": 2, "dp": 8}, "llama3-70b has no experts"),
    ({"model": DEEPSEEK_V3, "ep": 3, "dp": 24}, "ep=3 can't share 256 experts"),
    ({"model": DEEPSEEK_V3, "ep": 16, "dp": 8}, "ep=16 does not divide"),
    ({"model": DEEPSEEK_V3, "ep": 2, "tp": 2, "dp": 4, "sequence_parallel": False}, "want sequence_parallel=True"),
    ({"tp": 8, "sequence": 1001}, "sequence=1001 tokens"),
    ({"micro_batches": -1}, "micro_batches=-1"),
    ({"micro_batches": 13_108}, "micro_batches=13108 with 80 layers; want at most 13107"),
    ({"dp": 1 << 21}, "= 2097152 ranks; want at most 1048576"),
])
def test_sizes_that_do_not_fit_are_refused_with_what_would(changes, words):
    assert words in refusal(**changes)


@pytest.mark.parametrize(("changes", "words"), [
    ({"efficiency": 0}, "efficiency=0 "),
    ({"efficiency": 1.1}, "efficiency=1.1 "),
    ({"efficiency": float("nan")}, "efficiency=nan "),
    ({"flops_per_s": 0}, "flops_per_s=0"),
])
def test_a_gpu_that_computes_nothing_or_more_than_its_peak_is_refused(changes, words):
    with pytest.raises(UsageError) as refused:
        Gpu(**changes)
    assert words in str(refused.value) and "want" in str(refused.value)
