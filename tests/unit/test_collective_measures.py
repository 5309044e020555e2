"""Promises about AllReduce in the terms of nccl-tests: what the NICs are given to do, and where ring and tree cross."""

from __future__ import annotations

from collections import Counter

import pytest

from emu.errors import UsageError
from emu.measure.collective import busbw_limit_gbyte_per_s, conclusions, crossover_bytes, curves
from emu.nic.collective import ALGORITHMS, all_reduce, channels, data_parallel
from emu.nic.work_request import CLEAR_TO_SEND_BYTES, arrange
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

SERVERS, GPUS = 4, 4


def cluster(wiring: str = "rail", servers: int = SERVERS):
    return SpineLeaf(servers=servers, gpus_per_server=GPUS, wiring=wiring, leaf_down=4, leaf_up=4, rate_bps=gbps(400),
                     queue=QueueProfile(buffer_bytes=mib(1))).topology()


def data_bytes(messages) -> Counter:
    sizes = Counter()
    for (source, _, _), found in messages.connections.items():
        if messages.sizes[found[0]] != CLEAR_TO_SEND_BYTES:
            sizes[source] += sum(messages.sizes[at] for at in found)
    return sizes


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("size_bytes", [1, 1000, 40_000, mib(1)])
def test_every_size_of_every_algorithm_can_run(algo, size_bytes):
    messages = all_reduce(cluster(), algo, size_bytes)
    assert len(arrange(messages).messages) >= 2 * 2 * (SERVERS - 1), len(messages)


def test_a_ring_loads_each_nic_of_each_server_alike_with_the_bytes_that_busbw_counts():
    sizes, n = data_bytes(all_reduce(cluster(), "ring", mib(1))), SERVERS * GPUS
    want = 2 * (n - 1) / n * mib(1) / GPUS
    assert len(sizes) == n and all(size == want for size in sizes.values()), f"{sizes}, want {want} each"


def test_data_parallel_sums_stay_on_their_rail_and_load_each_nic_alike():
    messages = data_parallel(cluster(), "ring", mib(1))
    want = 2 * (SERVERS - 1) / SERVERS * mib(1)
    sizes = data_bytes(messages)
    assert len(sizes) == SERVERS * GPUS and all(size == want for size in sizes.values()), f"{sizes}, want {want}"
    rails = {(source.ifname, target.ifname) for source, target, _ in messages.connections}
    assert all(one == other for one, other in rails), rails


def test_a_channel_has_at_least_16_kib_and_there_is_one_for_each_rail():
    assert [channels(size, 8) for size in (1, 16_384, 16_385, 65_536, mib(1))] == [1, 1, 2, 4, 8]


@pytest.mark.parametrize("algo, servers, said", [("ring", 1, "single server"), ("rings", 2, "did you mean 'ring'")])
def test_what_needs_no_network_or_does_not_exist_is_refused(algo, servers, said):
    with pytest.raises(UsageError, match=said):
        all_reduce(cluster(servers=servers), algo, 1000)


def test_the_limit_is_the_payload_of_full_frames_at_line_rate_on_all_nics():
    plan = make_plan(cluster(), 1)
    got, want = busbw_limit_gbyte_per_s(plan, 8), 8 * 50 * 4096 / plan.frame_bytes
    assert got == pytest.approx(want) and 390 < got < 395, got


def test_the_crossover_is_where_lines_on_log_axes_meet():
    ring, tree = {1: 100.0, 4: 100.0, 16: 100.0}, {1: 25.0, 4: 50.0, 16: 200.0}
    assert crossover_bytes(ring, tree) == pytest.approx(8)
    assert crossover_bytes(tree, ring) is None, "the tree is faster at the largest size"
    assert crossover_bytes({1: 1.0, 4: 1.0}, {1: 2.0, 4: 2.0}) == 1
    assert crossover_bytes({}, {}) is None


def test_a_ring_that_wins_in_the_middle_only_has_not_won_there():
    ring, tree = {1: 2.0, 4: 1.0, 16: 3.0, 64: 1.0}, {1: 1.0, 4: 2.0, 16: 1.0, 64: 3.0}
    assert crossover_bytes(ring, tree) == pytest.approx(32)


def rows(algo: str, times: dict[int, float]) -> list[dict]:
    alike = {"algo": algo, "gpus": 64, "ranks": 64, "bus_factor": 1.97, "busbw_limit_GBps": 392.5}
    return [alike | {"size_bytes": size, "completion_us": us, "busbw_GBps": size / us} for size, us in times.items()]


def test_conclusions_state_the_factor_the_limit_and_each_crossover():
    both = rows("ring", {1: 100.0, 16: 100.0}) + rows("tree", {1: 50.0, 16: 200.0}) + rows("double_tree", {1: 10.0, 16: 20.0})
    said = {metric.name: metric.value for metric in conclusions(both)}
    assert said == {"bus_factor_64_gpus": 1.97, "busbw_limit_GBps_64_gpus": 392.5, "crossover_tree_64_gpus": 4,
                    "crossover_double_tree_64_gpus": "none"}, said
    assert conclusions([]) == []


def test_curves_have_log_axes_and_all_sizes():
    time, busbw = curves(rows("ring", {1: 100.0, 16: 200.0}), "ring")
    assert time.log and busbw.log and list(time.x) == [1.0, 16.0] and list(time.y) == [100.0, 200.0]
