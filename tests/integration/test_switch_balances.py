"""Promises of the load-balancing modes under RDMA traffic: how even the uplinks are, and what the transport sees of it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from itertools import product

import pytest

from emu.fabric import queue
from emu.fabric.fabric import Fabric
from emu.measure.uplinks import Spread
from emu.nic.work_request import Message
from emu.scale import Scale
from emu.switch.ecmp import Ecmp, EnhancedEcmp
from emu.switch.flow_table import FlowTable
from emu.switch.flowlet import Flowlet
from emu.switch.mode import Installed, Mode
from emu.switch.spray import Spray, SprayRandom
from emu.topology.model import Link, Port, Server, Switch, Topology, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.units import gbps, mib, ms
from tests.integration.switch_traffic import (
    LEAVES,
    NICS,
    PER_LEAF,
    Run,
    all_to_all,
    non_blocking,
    permutation,
    rotated_paths,
    run,
)

EVEN = 1.02
MARKING = EcnProfile(kmin_bytes=200_000, kmax_bytes=800_000, pmax=0.1)
FRAME_BYTES = 4174
IDEAL_US = mib(1) * 8 / 400e3  # a message of 1 MiB at line rate, without headers


def complete(result: Run) -> None:
    assert result.outcome.left == 0, f"{result.outcome.left} messages are not complete"
    dropped = sum(port.dropped_packets for port in result.ports.values())
    assert dropped == 0, f"{dropped} packets dropped in a fabric that should not lose any"


@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("messages", [permutation(), all_to_all(), permutation(channels=2)], ids=["permutation", "all", "2 QPs"])
def test_spray_is_even_and_nothing_is_sent_twice(messages):
    result = run(Spray(), messages)
    complete(result)
    assert result.imbalance() <= EVEN, f"max/mean {result.imbalance():.4f}, allowed {EVEN}"
    again = result.sum_of("resent_packets"), result.sum_of("timeouts")
    assert again == (0, 0), f"{again} packets resent and timeouts, though nothing was lost"


@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("mode, size_bytes", [(Spray(), 800_000), (SprayRandom(), 100_000)], ids=["spray", "spray_random"])
def test_packets_overtake_each_other_under_spray_which_sr_takes_and_gbn_pays_for(mode: Mode, size_bytes: int):
    """NICs that begin in step are sprayed nearly in order at first: by queues, with messages of 600 kB to 1 MB, gbn sends 26 to
    46 % again and takes 1.8 to 3.1 times as long as sr; at random, 85 % of 100 kB and 20 times as long."""
    took, paid = (run(mode, all_to_all(size_bytes), transport=transport) for transport in ("sr", "gbn"))
    complete(took)
    complete(paid)
    assert took.sum_of("early_packets") > 100, f"{took.sum_of('early_packets')} of {took.sum_of('sent_packets')} early: no test"
    assert took.sum_of("resent_packets") == 0, f"sr resent {took.sum_of('resent_packets')} packets"
    resent, sent = paid.sum_of("resent_packets"), paid.sum_of("sent_packets")
    assert resent > 0.2 * sent, f"gbn resent {resent} of {sent}"
    assert paid.elapsed_us > 1.5 * took.elapsed_us, f"gbn took {paid.elapsed_us:.1f} us, sr {took.elapsed_us:.1f} us"


@pytest.mark.needs_hash_seed
@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("mode", [Ecmp(), EnhancedEcmp()], ids=["ecmp", "eecmp"])
def test_a_hashed_permutation_waits_for_its_collisions_and_keeps_its_order(mode: Mode):
    hashed, sprayed = run(mode, permutation(), transport="gbn"), run(Spray(), permutation())
    complete(hashed)
    assert hashed.imbalance() > 1.5, f"max/mean {hashed.imbalance():.2f}: four flows on four uplinks without a collision"
    assert hashed.sum_of("resent_packets") == 0, "gbn saw packets out of order on one path"
    slower = hashed.elapsed_us / sprayed.elapsed_us
    assert slower == pytest.approx(hashed.imbalance(), rel=0.05), f"{slower:.2f} times slower, max/mean {hashed.imbalance():.2f}"


@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("match", ["qp", "udp_sport"])
def test_a_permutation_on_computed_paths_has_no_collision(match: str):
    result = run(FlowTable(rotated_paths(permutation()), match=match), permutation(), transport="gbn")
    complete(result)
    assert result.imbalance() == 1, f"max/mean {result.imbalance()}, want exactly 1"
    assert not any(result.picks.unknown.values()), f"flows without a path: {result.picks.unknown}"
    assert result.sum_of("resent_packets") == 0
    share = IDEAL_US / result.elapsed_us
    assert share > 0.95, f"{result.elapsed_us:.2f} us, {share:.1%} of line rate"


@pytest.mark.needs_virtual_clock
def test_flows_that_the_controller_does_not_know_are_counted_and_arrive():
    half = rotated_paths(permutation())[::2]
    result = run(FlowTable(half), permutation())
    complete(result)
    known, unknown = sum(result.picks.packets.values()), sum(result.picks.unknown.values())
    assert known > 1000 and unknown > 1000, f"{known} packets on known paths, {unknown} not"


@pytest.mark.needs_virtual_clock
def test_a_flowlet_keeps_its_path_until_a_pause_and_a_gap_of_zero_is_spray():
    patient, hasty = run(Flowlet(ms(100)), permutation(), transport="gbn"), run(Flowlet(0), permutation())
    complete(patient)
    complete(hasty)
    assert patient.sum_of("resent_packets") == 0, f"{patient.sum_of('resent_packets')} resent: a flow changed its path"
    assert hasty.imbalance() <= EVEN, f"gap 0: max/mean {hasty.imbalance():.4f}"


@pytest.mark.needs_virtual_clock
def test_what_the_program_takes_for_queued_is_what_the_queue_holds():
    """At every sample, to one frame: the one on the link, which the queue no longer counts."""
    seen: list[tuple[int, int]] = []

    def watch(fabric: Fabric, lb: Installed) -> None:
        state = queue.read(fabric.netlink("leaf0"))
        for port in (Port("leaf0", "up0"), Port("leaf0", "up1")):
            held = state[fabric.ports[port].ifindex, queue.TBF_HANDLE].queued_bytes
            seen.append((held, lb.waiting_bytes(port, time.monotonic_ns())))

    complete(run(Spray(), permutation(), topology=non_blocking(uplinks=2), watch=watch))
    deep = [pair for pair in seen if pair[0] > 10 * FRAME_BYTES]
    assert len(deep) > 20, f"only {len(deep)} of {len(seen)} samples found a queue: no test"
    wrong = [pair for pair in seen if not -FRAME_BYTES <= pair[1] - pair[0] <= 2 * FRAME_BYTES]
    assert not wrong, f"{len(wrong)} of {len(seen)} samples, the first (queue, program): {wrong[:3]}"


def three_tiers() -> Topology:
    """Two pods of one leaf and two aggregation switches; each of these has four cores to itself."""
    servers = tuple(Server(name=f"srv{number}", gpus=1) for number in range(16))
    names = [("leaf", 2), ("spine", 4), ("core", 8)]
    switches = tuple(Switch(name=f"{role}{k}", role=role, radix=64) for role, count in names for k in range(count))
    links = [Link(a=nic(k, 0), b=Port(f"leaf{k // 8}", f"down{k % 8}"), rate_bps=gbps(400)) for k in range(16)]
    for spine in range(4):
        links.append(Link(a=Port(f"leaf{spine // 2}", f"up{spine % 2}"), b=Port(f"spine{spine}", "down0"), rate_bps=gbps(400)))
    for spine in range(4):
        for k in range(4):
            core = Port(f"core{spine % 2 * 4 + k}", f"down{spine // 2}")
            links.append(Link(a=Port(f"spine{spine}", f"up{k}"), b=core, rate_bps=gbps(400)))
    return Topology(name="three_tiers", servers=servers, switches=switches, links=tuple(links),
                    queue=QueueProfile(buffer_bytes=mib(16)))


@pytest.mark.needs_hash_seed
@pytest.mark.needs_virtual_clock
@pytest.mark.parametrize("seeds, idle", [("per_switch", 0), ("shared", 0.5)])
def test_with_one_seed_for_all_switches_the_second_tier_cannot_spread_what_the_first_has_sorted(seeds: str, idle: float):
    """64 flows; each half that one of two uplinks gets reaches an aggregation switch with four."""
    flows = [Message(source=nic(k, 0), target=nic(8 + k, 0), size_bytes=40_000, channel=qp) for qp in range(8) for k in range(8)]
    result = run(Ecmp(), flows, hash_seeds=seeds, topology=three_tiers())
    complete(result)
    second = Spread([size for spine in ("spine0", "spine1") for size in result.uplinks(spine).values()])
    assert second.idle_share == idle, f"{second.idle_share:.0%} of the second tier's uplinks are idle, want {idle:.0%}"
    first = Spread(list(result.uplinks("leaf0").values()))
    assert first.max_over_mean < 1.5, f"max/mean {first.max_over_mean:.2f} over two uplinks"


@pytest.mark.needs_root
def test_every_kernel_that_railbed_runs_on_sprays():
    result = run(Spray(), permutation(size_bytes=200_000))
    assert result.outcome.left == 0, f"{result.outcome.left} messages are not complete"
    picked = result.picks.packets
    assert len(picked) == LEAVES * PER_LEAF and min(picked.values()) > 0, f"packets by uplink: {picked}"
    assert sum(picked.values()) >= NICS * 49, f"{sum(picked.values())} packets went up, {NICS * 49} are data"


@pytest.mark.needs_root
@pytest.mark.parametrize("ecn", [None, pytest.param(MARKING, marks=pytest.mark.needs_marker)], ids=["plain", "with a marker"])
def test_a_mode_that_is_left_leaves_the_ports_as_they_were(ecn: EcnProfile | None):
    """The BPF marker, where that is what marks, has a hook on the same ports, which must stay."""
    topology = replace(non_blocking(), queue=QueueProfile(buffer_bytes=mib(16), ecn=ecn))
    with Fabric(make_plan(topology, seed=1), Scale(dilation=100)) as fabric:
        before = programs(fabric)
        with Spray().install(fabric):
            during = programs(fabric)
        assert len(during) == len(before) + PER_LEAF, f"{len(during)} lines of tc, {len(before)} before"
        assert programs(fabric) == before


def programs(fabric: Fabric) -> list[str]:
    """What `tc` shows of programs on leaf0's ports towards servers, a line each."""
    netns = fabric.netlink("leaf0").netns
    lines: list[str] = []
    for place, direction in product(range(PER_LEAF), ("ingress", "egress")):
        words = ["tc", "-n", netns, "filter", "show", "dev", f"down{place}", direction]
        shown = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
        lines += [line for line in shown.splitlines() if "direct-action" in line]
    return lines
