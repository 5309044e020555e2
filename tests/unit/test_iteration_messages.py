"""Promises of an iteration as messages: every byte of the closed forms, every wait in its place, compute as long as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import UsageError
from emu.nic.cluster import Cluster
from emu.nic.connection_matrix import NOTICE_BYTES, NOTICE_CHANNEL, flows, start_gaps_ns
from emu.nic.iteration import chain, kind_of
from emu.nic.work_request import arrange
from emu.topology.frame import frame_bytes, frames_bytes
from emu.topology.model import Port
from emu.topology.scale_up import ScaleUp
from emu.topology.scale_up_profiles import profile
from emu.workload.closed_forms import closed_forms
from emu.workload.compute_clock import ComputeClock
from emu.workload.emulated import of_job, of_simai, scaled
from emu.workload.event import Event, sent_by_kind
from emu.workload.htsim_matrix import read_connection_matrix
from emu.workload.job import Job
from emu.workload.model import model_named
from emu.workload.simai import read_simai, simai_events

FIXTURES = Path(__file__).parent / "fixtures"
SIMAI = str(FIXTURES / "simai_small.txt")
MTU, SHARE = 4096, 4096
LLAMA = Job(model=model_named("llama3-70b"), tp=4, pp=2, dp=2, micro_batches=2, sequence=1024, gpus_per_server=4)
DEEPSEEK = Job(model=model_named("deepseek-v3"), tp=1, pp=2, dp=8, ep=8, micro_batches=2, sequence=1024, gpus_per_server=4)
DOMAIN = ScaleUp(kind="switch", technology=profile("nvlink4"), gpus_per_server=4, domain_gpus=4)


def made(job: Job, layers: int, scale_down: int, scale_up: ScaleUp | None = DOMAIN, **options):
    events = of_job(job, layers, scale_down).events
    clock = ComputeClock.for_times((event.duration_ns for event in events), MTU)
    return chain(events, Cluster(gpus_per_server=4, scale_up=scale_up), clock, **options)


@pytest.mark.parametrize(("job", "layers"), [(LLAMA, 2), (DEEPSEEK, 5)], ids=["llama", "deepseek"])
@pytest.mark.parametrize("pxn", [False, True])
@pytest.mark.parametrize("scale_up", [DOMAIN, None], ids=["live", "no time"])
def test_the_schedules_carry_the_bytes_of_the_events_and_nics_all_that_leaves_a_server(job, layers, pxn, scale_up):
    work = made(job, layers, SHARE, scale_up, pxn=pxn)
    for kind, want in sent_by_kind(work.events).items():
        listed = {link: work.transfer_bytes[kind, link] for link in ("scale_up", "scale_out")}
        on_nics = sum(m.size_bytes for m in work.messages if m.source.ifname.startswith("rail") and kind_of(m.channel) == kind)
        relayed = kind == "ep" and pxn  # PXN's first step comes on top
        assert sum(listed.values()) == want or relayed, f"{kind}: {listed} make {sum(listed.values())}, events {want}"
        assert on_nics == listed["scale_out"], f"{kind}: NICs carry {on_nics}, schedules {listed}"
    arrange(work.messages)


def test_what_is_emulated_says_what_it_leaves_out_and_keeps_the_whole_beside():
    found = of_job(LLAMA, 4, 64)
    assert found.said == "emulated: 4 of 80 layers, 1/64 of bytes and compute time"
    assert found.whole == closed_forms(LLAMA) == found.formula
    assert found.ranks == 16
    assert of_job(LLAMA, 0, 64).events == of_job(LLAMA, 80, 64).events == of_job(LLAMA, 1000, 64).events
    with pytest.raises(UsageError, match="layers=1 on pp=2 stages; want at least 2"):
        of_job(LLAMA, 1, 1)


def test_what_would_take_hours_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match="MB to emulate; want at most 100,000 MB: a larger scale_down, or fewer layers"):
        of_job(LLAMA, 0, 1)


def test_sizes_and_times_are_divided_alike_and_no_message_disappears():
    events = (Event("a", "compute", "l", ((0,),), duration_ns=100), Event("b", "tp", "l", ((0, 1),), "all_gather", 3))
    first, second = scaled(events, 10)
    assert (first.duration_ns, first.size_bytes, second.size_bytes) == (10, 0, 1)


def test_a_simai_file_is_run_by_all_ranks_of_a_stage_and_says_what_it_does_not_send():
    found = of_simai(SIMAI, 0, 4, 1)
    workload = read_simai(SIMAI)
    assert found.ranks == workload.tp * workload.dp == 8
    assert found.said == ("emulated: 3 of 3 lines, 4 of 4 replicas, a stage of 2, 1/1 of bytes and compute time"
                          f"; {workload.pp_sent_bytes} bytes a rank between stages are not sent")
    alone, together = (sent_by_kind(simai_events(workload, everybody=all_ranks)) for all_ranks in (False, True))
    assert [together[kind] for kind in ("tp", "ep")] == [4 * alone[kind] for kind in ("tp", "ep")], (alone, together)
    assert len(of_simai(SIMAI, 1, 2, 1).events) < len(found.events)
    with pytest.raises(UsageError, match="want a multiple of 2"):
        of_simai(SIMAI, 0, 3, 1)


@pytest.mark.parametrize("name", ["tp", "ep", "dp", "dp_ep"])
def test_the_groups_of_a_stage_have_every_rank_once_and_rank_0_s_first(name):
    workload = read_simai(SIMAI)
    groups = workload.groups(name)
    assert groups[0] == workload.group(name)
    assert sorted(rank for group in groups for rank in group) == list(range(workload.tp * workload.dp)), groups


@pytest.mark.parametrize("straight_on", [False, True])
@pytest.mark.parametrize("duration_ns", [5_000, 12_345, 100_000, 3_000_000])
def test_messages_of_the_clock_take_as_long_as_the_computation(duration_ns, straight_on):
    clock = ComputeClock.for_times([0, 50_000, 50_000], MTU)
    sizes = clock.sizes(duration_ns, straight_on=straight_on)
    waits = sum(frames_bytes(size, MTU) for size in sizes) - frame_bytes(MTU) * (not straight_on)  # all frames, but for the last
    taken_ns = waits * 8e9 / clock.rate_bps
    short_ns = (frame_bytes(4) + 3) * 8e9 / clock.rate_bps
    assert abs(taken_ns - duration_ns) <= short_ns, f"{taken_ns:.0f} ns on the wire, want {duration_ns}, to {short_ns:.0f}"
    assert sizes[-1] % MTU == 0, f"{sizes}: the last frame must be a full one"


def test_what_is_shorter_than_a_frame_is_a_frame_without_a_wait():
    clock = ComputeClock.for_times([50_000], MTU)
    assert clock.sizes(1) == clock.sizes(1000, straight_on=True) == (1,)
    assert clock.error_ns == pytest.approx(50_000 / 40, rel=1e-3)
    assert ComputeClock.for_times([], MTU).rate_bps == 1_000_000_000


def test_a_stage_begins_when_the_activation_has_come_and_replicas_do_not_wait_for_each_other():
    work = made(LLAMA, 2, SHARE, None)
    computing = [m for m in work.messages if m.source.ifname.startswith("clk")]
    entry = next(m for m in computing if m.source == Port("srv2", "clk0a"))
    awaited = [work.messages[index] for index in entry.after]
    assert [str(m.target) for m in awaited] == [f"srv2:rail{gpu}" for gpu in range(4)], "all its tensor-parallel ranks"
    assert {kind_of(m.channel) for m in awaited} == {"pp"} and {m.source.node for m in awaited} == {"srv0"}


def test_pxn_is_what_expert_parallelism_alone_uses():
    off, on = (made(DEEPSEEK, 5, SHARE, pxn=pxn) for pxn in (False, True))
    for work, crosses in ((off, True), (on, False)):
        nics = [m for m in work.messages if m.source.ifname.startswith("rail") and kind_of(m.channel) == "ep"]
        assert any(m.source.ifname != m.target.ifname for m in nics) == crosses


def test_a_flow_waits_for_its_start_for_its_trigger_or_for_the_word_of_it():
    matrix = read_connection_matrix(str(FIXTURES / "htsim_small.cm"))
    assert start_gaps_ns(matrix) == [5000]
    clock = ComputeClock.for_times(start_gaps_ns(matrix), MTU)
    spread = flows(matrix, Cluster(gpus_per_server=1), clock)
    found = [spread.messages[index] for index in spread.indexes]
    of_flow = {(message.source.node, message.size_bytes): message for message in found}
    assert of_flow["srv0", 1000].after == ()
    (start,) = of_flow["srv0", 10].after
    assert spread.messages[start].source == Port("srv0", "clk0a")
    (relayed,) = of_flow["srv1", 2000].after
    assert spread.messages[relayed].size_bytes == 1000, "what ends where the next begins needs no notice"
    waits = [spread.messages[index] for index in of_flow["srv2", 3000].after]
    assert sorted(m.size_bytes for m in waits) == [NOTICE_BYTES, 2000]
    assert spread.notices == sum(m.channel == NOTICE_CHANNEL for m in spread.messages) == 5
    arrange(spread.messages)
    assert flows(matrix, Cluster(gpus_per_server=4), clock).notices == 0, "in one server all is known"
