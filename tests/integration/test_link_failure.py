"""Promises about a link that fails while traffic runs: every mode loses packets, then goes round it, and comes back."""

from __future__ import annotations

import time

import pytest

from emu.errors import UsageError
from emu.fabric import link, routes
from emu.fabric.failure import LinkEvent, LinkEvents
from emu.fabric.fabric import Fabric
from emu.scale import Scale
from emu.switch.ecmp import Ecmp, EnhancedEcmp
from emu.switch.flow_table import FlowTable
from emu.switch.flowlet import Flowlet
from emu.switch.mode import Installed, Mode
from emu.switch.spray import Spray, SprayRandom, SprayRoundRobin
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.units import mib, us
from tests.integration.switch_traffic import DILATION, Run, non_blocking, permutation, rotated_paths, run

pytestmark = pytest.mark.needs_virtual_clock

SIZE_BYTES = mib(4)  # 84 us at line rate
LINE_BYTES_PER_NS = 50
FAILS_NS, CONVERGENCE_NS, RTO_NS, TICK_NS = us(20), us(20), us(50), us(1)
CABLE = Port("leaf1", "up0")  # what leaf0 sends to leaf1 over spine0 comes down it
REMOTE = Port("leaf0", "up0")
DOWN = LinkEvent(at_ns=FAILS_NS, port=CABLE)
MODES = {
    "ecmp": Ecmp(), "eecmp": EnhancedEcmp(), "path": FlowTable(rotated_paths(permutation())), "spray": Spray(),
    "spray_random": SprayRandom(), "spray_rr": SprayRoundRobin(), "flowlet": Flowlet(us(10)),
}


def run_with(mode: Mode, failures: list[LinkEvent], **options) -> Run:
    return run(mode, permutation(SIZE_BYTES), failures=failures, convergence_ns=CONVERGENCE_NS, rto_ns=RTO_NS, **options)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_every_mode_goes_round_a_dead_link_and_all_messages_arrive(mode: Mode):
    picked: list[tuple[int, int, int]] = []

    def watch(_fabric: Fabric, lb: Installed) -> None:
        counters = lb.counters()
        picked.append((time.monotonic_ns(), counters.packets[REMOTE], counters.bytes[REMOTE]))

    result = run_with(mode, [DOWN], watch=watch)
    assert result.outcome.left == 0, f"{result.outcome.left} messages are not complete"
    resent = result.sum_of("resent_packets")
    assert resent > 0, "the dead link lost nothing: no test"
    sent, most = result.uplinks("leaf1")[CABLE], FAILS_NS * LINE_BYTES_PER_NS * 1.1
    assert sent <= most, f"{sent} bytes out of a port that was dead from {FAILS_NS} ns on, at most {most:.0f}"
    after = [sample for sample in picked if sample[0] > result.failed_ns[1]]
    packets, size = (after[-1][at] - after[0][at] for at in (1, 2))
    assert size <= 100 * packets, f"{size} bytes in {packets} packets went the dead way after convergence; only ACKs to leaf3 may"


def test_a_mode_that_is_not_told_goes_on_losing_packets():
    told, untold = run_with(Spray(), [DOWN]), run_with(Spray(), [DOWN], followed=False)
    lost, lost_untold = told.sum_of("resent_packets"), untold.sum_of("resent_packets")
    assert lost_untold > 4 * lost, f"{lost_untold} packets sent again, {lost} if told"
    assert untold.elapsed_us > 3 * told.elapsed_us, f"{untold.elapsed_us:.0f} us, {told.elapsed_us:.0f} us if told"


def test_spray_shares_what_is_left_evenly_and_costs_what_is_missing():
    whole, broken = run_with(Spray(), []), run_with(Spray(), [DOWN])
    left = [size for port, size in broken.uplinks("leaf1").items() if port != CABLE]
    assert max(left) <= 1.02 * sum(left) / len(left), f"bytes on the three links that are left: {left}"
    # leaf1's uplinks: four until the failure, three from then on
    wanted_us = FAILS_NS / 1000 + (whole.elapsed_us - FAILS_NS / 1000) * 4 / 3
    assert wanted_us <= broken.elapsed_us < 1.4 * wanted_us, f"{broken.elapsed_us:.1f} us, without any loss {wanted_us:.1f}"


def test_a_link_that_comes_back_is_used_again():
    up = LinkEvent(at_ns=us(60), port=CABLE, up=True)
    gone, back = run_with(Spray(), [DOWN]), run_with(Spray(), [DOWN, up])
    assert (gone.outcome.left, back.outcome.left) == (0, 0)
    before, after = gone.uplinks("leaf1")[CABLE], back.uplinks("leaf1")[CABLE]
    assert after > 1.3 * before, f"{after} bytes on the repaired link, {before} if it stays dead"
    assert back.elapsed_us < gone.elapsed_us


def test_events_happen_at_their_time_to_a_tick():
    result = run_with(Spray(), [DOWN])
    down_ns, learnt_ns = ((when - result.outcome.first_ns) / DILATION for when in result.failed_ns)
    for asked, got in ((FAILS_NS, down_ns), (FAILS_NS + CONVERGENCE_NS, learnt_ns)):
        assert 0 <= got - asked <= 2 * TICK_NS, f"asked {asked} ns, done {got:.0f} ns"


def test_afterwards_links_and_routes_are_as_planned():
    with Fabric(make_plan(non_blocking(), seed=1), Scale(dilation=DILATION)) as fabric:
        cables = [Port("leaf1", "up0"), Port("spine2", "down3")]
        with LinkEvents(fabric, [LinkEvent(at_ns=0, port=port) for port in cables], convergence_ns=0) as events:
            events.tick()
            assert events.finished
            assert len(differences(fabric)) > 4, f"two links are down: {differences(fabric)}"
            answer = fabric.get("srv0").cmd(f"ping -c 3 -i 0.01 {fabric.ports[nic(4, 0)].address}")
            assert "3 received" in answer, answer
        assert differences(fabric) == []
        answer = fabric.get("srv4").cmd(f"ping -c 3 -i 0.01 {fabric.ports[nic(15, 0)].address}")
        assert "3 received" in answer, answer


def differences(fabric: Fabric) -> list[str]:
    """Ports that aren't up and routes that aren't the plan's."""
    found: list[str] = []
    for node in fabric.plan.nodes:
        netlink = fabric.netlink(node.name)
        found += link.not_running(node.ports, link.read(netlink)) + routes.mismatches(node, netlink)
    return found


@pytest.mark.parametrize("port", [nic(0, 0), Port("leaf0", "down0"), Port("leaf9", "up0")], ids=str)
def test_a_port_without_a_cable_between_switches_is_refused_by_name(port: Port):
    with Fabric(make_plan(non_blocking(), seed=1), Scale(dilation=DILATION)) as fabric:
        with pytest.raises(UsageError, match=f"{port} has no cable to another switch"):
            LinkEvents(fabric, [LinkEvent(at_ns=0, port=port)])
