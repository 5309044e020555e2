"""Promises of schedules as messages over both networks: nothing lost, nothing twice, and every wait can be kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from emu.collectives.all_to_all import all_to_all
from emu.collectives.moe import Routing, moe_dispatch
from emu.collectives.placement import Placement
from emu.collectives.ring import ring_all_reduce
from emu.collectives.traffic import scale_out_only, traffic
from emu.nic.cluster import Cluster, Requests, over_both
from emu.nic.message import Message
from emu.nic.messages import from_schedule
from emu.nic.work_request import arrange
from emu.topology.frame import frame_bytes, frames_bytes, size_of_frames
from emu.topology.model import Port, nic
from emu.topology.scale_up import ScaleUp
from emu.topology.scale_up_profiles import profile
from emu.workload.event import Event
from emu.workload.schedules import schedules

PLACEMENT = Placement(16, 4)
SIZE = 16 * 4096


def domain(kind: str = "switch", **changes) -> ScaleUp:
    return ScaleUp(kind=kind, technology=profile("nvlink4"), **{"gpus_per_server": 4, "domain_gpus": 4} | changes)


def on(scale_up: ScaleUp | None = None, **changes) -> Cluster:
    return Cluster(gpus_per_server=4, scale_up=scale_up, **changes)


def split(messages: Iterable[Message]) -> tuple[int, int]:
    """Bytes over scale-up ports, over NICs."""
    up = sum(message.size_bytes for message in messages if message.source.ifname.startswith("nv"))
    return up, sum(message.size_bytes for message in messages) - up


@pytest.mark.parametrize("relay", [False, True])
@pytest.mark.parametrize("made", ["all_to_all", "moe", "ring"])
def test_each_network_gets_the_bytes_that_the_schedule_has_for_it(made, relay):
    schedule = {
        "all_to_all": lambda: all_to_all(PLACEMENT, SIZE, pxn=relay),
        "moe": lambda: moe_dispatch(PLACEMENT, Routing(tokens=3, token_bytes=100, experts=32), seed=1, pxn=relay),
        "ring": lambda: ring_all_reduce(PLACEMENT, SIZE, channels=4),
    }[made]()
    messages = over_both(schedule, on(domain()))
    want = traffic(schedule)
    assert split(messages) == (want.scale_up_bytes, want.same_rail_bytes + want.cross_rail_bytes)
    arrange(messages)  # refuses what waits for another server, or for what comes later


def test_with_pxn_no_message_changes_rail_and_without_they_do():
    for relay, changing in ((True, 0), (False, 4 * 3 * 4 * 3)):
        messages = over_both(all_to_all(PLACEMENT, SIZE, pxn=relay), on())
        changed = sum(message.source.ifname != message.target.ifname for message in messages)
        assert changed == changing, f"pxn={relay}: {changed} messages change rail, want {changing}"


def test_without_a_live_domain_the_messages_are_those_of_the_schedule_without_its_scale_up_part():
    schedule = all_to_all(PLACEMENT, SIZE, pxn=True)
    assert list(over_both(schedule, on())) == list(from_schedule(scale_out_only(schedule)))


def test_planes_share_a_transfer_and_a_relay_passes_it_on():
    schedule = all_to_all(PLACEMENT, SIZE)
    ports = {message.source.ifname for message in over_both(schedule, on(domain(planes=2)))}
    assert {"nv0p0", "nv0p1"} <= ports, ports
    twice = split(over_both(schedule, on(domain("hybrid_mesh"))))[0]
    once = traffic(schedule).scale_up_bytes
    assert twice == once * 4 // 3, f"one of three peers has no cable to a GPU: {once} bytes became {twice}"


def test_a_gpu_uses_the_nic_that_belongs_to_it():
    crossed = list(over_both(all_to_all(PLACEMENT, SIZE), on(nic_of=(1, 0, 3, 2))))
    straight = list(over_both(all_to_all(PLACEMENT, SIZE), on()))
    assert crossed != straight
    swapped = [message._replace(source=_other(message.source), target=_other(message.target)) for message in crossed]
    assert swapped == straight


def _other(port: Port) -> Port:
    return Port(port.node, f"rail{int(port.ifname[4:]) ^ 1}")


def test_a_collective_begins_when_each_rank_is_ready_and_ends_with_its_own_arrivals():
    requests = Requests(on())
    clocks = {rank: requests.send(nic(rank // 4, 0), nic(rank // 4, 1), 1) for rank in (0, 4)}
    placed = next(schedules(Event("sum", "dp", "lane", ((0, 4),), "reduce_scatter", 1000), 4))
    ended = requests.run(placed, {rank: (index,) for rank, index in clocks.items()})
    first, second = requests.messages[2:]
    assert first.after == (clocks[0],) and second.after == (clocks[4],), (first, second)
    assert {rank: set(indexes) for rank, indexes in ended.items()} == {0: {clocks[0], 3}, 4: {clocks[4], 2}}


def test_only_the_first_message_of_a_connection_waits_for_its_rank():
    requests = Requests(on())
    ready = {rank: (requests.send(nic(rank // 4, 0), nic(rank // 4, 1), 1),) for rank in (0, 4, 8)}
    placed = next(schedules(Event("sum", "dp", "lane", ((0, 4, 8),), "all_reduce", 3000), 4))
    requests.run(placed, ready)
    waiting = Counter(message.source.node for message in requests.messages if set(message.after) & {0, 1, 2})
    assert waiting == dict.fromkeys(("srv0", "srv1", "srv2"), 1), waiting


@pytest.mark.parametrize("size", [1, 4, 4095, 4096, 4097, 10_000, 1 << 20])
def test_a_message_made_to_be_as_long_as_its_frames_is_as_long(size):
    wire = frames_bytes(size, 4096)
    back = size_of_frames(wire, 4096)
    assert 0 <= back - size < 4, f"{size} bytes take {wire} on the wire, which hold {back}"
    assert size_of_frames(wire - 4, 4096) < size or size <= 4, "a shorter wire holds as much"
    assert frames_bytes(4097, 4096) == frame_bytes(4096) + frame_bytes(1) == 4174 + 82
