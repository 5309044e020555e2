"""Promises of the cell fabric: servers see a router with a short queue, and what it costs is what the formula says."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from emu.fabric import link, queue
from emu.fabric.depth import DepthProbe
from emu.fabric.failure import LinkEvent, LinkEvents
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.fabric.queue import tbf_parent
from emu.measure.counters import PortCounters, difference, snapshot
from emu.measure.uplinks import Spread
from emu.nic.engine import Engine, Outcome
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.roce.psn import packets_of_message
from emu.scale import Scale
from emu.switch.cells import CELL_HEADER_BYTES, cell_tax, cells_of
from emu.switch.ddc import Ddc
from emu.switch.ddc_counters import DdcCounters
from emu.switch.ecmp import Ecmp
from emu.switch.mode import Mode
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, us
from tests.integration.ddc_wire import CellRecorder, Wire, as_routed, frame, payload, put_together

pytestmark = pytest.mark.needs_virtual_clock

PER_LEAF, LEAVES, SPINES = 4, 4, 4
NICS = PER_LEAF * LEAVES
MTU_BYTES, FRAME_BYTES, ACK_BYTES, ACK_EVERY = 4096, 4174, 62, 4
RATE_BPS, DILATION, LIMIT_S, CONVERGENCE_NS = gbps(400), 100, 20, us(20)
ECN = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.2)
DEEP, SHALLOW = QueueProfile(buffer_bytes=mib(16), ecn=ECN), QueueProfile(buffer_bytes=500_000, ecn=ECN)
EVEN = 1.02
TARGET = Port("leaf0", "down0")  # of nic(0, 0)


def make_fabric(elided: bool = True, profile: QueueProfile = DEEP, spines: int = SPINES) -> Fabric:
    """NICs 0 to 3 under leaf0, 4 to 7 under leaf1, and so on."""
    shape = SpineLeaf(servers=NICS, gpus_per_server=1, wiring="single", leaf_down=PER_LEAF, leaf_up=SPINES, spines=spines,
                      rate_bps=RATE_BPS, queue=profile)
    return Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=DILATION), elided=elided)


def permutation(size_bytes: int) -> list[Message]:
    return [Message(source=nic(at, 0), target=nic((at + PER_LEAF) % NICS, 0), size_bytes=size_bytes) for at in range(NICS)]


def incast(senders: int = 8, size_bytes: int = mib(1)) -> list[Message]:
    """From two other leaves, all to NIC 0."""
    return [Message(source=nic(PER_LEAF + at, 0), target=nic(0, 0), size_bytes=size_bytes) for at in range(senders)]


@dataclass
class Run:
    """What came of it; done_ns: fabric time. depth_bytes: samples of TARGET's queue."""

    messages: Sequence[Message]
    outcome: Outcome
    ends: dict
    done_ns: list[float]
    ports: dict[Port, PortCounters]
    cells: DdcCounters
    depth_bytes: list[int]

    def sum_of(self, field: str) -> int:
        """Of struct nic_qp."""
        return sum(getattr(qp, field) for qp in self.ends.values())

    def total(self, field: str) -> int:
        return sum(getattr(port, field) for port in self.ports.values())

    def assert_exact(self) -> None:
        """Every byte of every message was placed once, and where it belongs."""
        assert self.outcome.left == 0, f"{self.outcome.left} of {len(self.messages)} messages not complete after {LIMIT_S} s"
        wanted = sum(m.size_bytes for m in self.messages), sum(packets_of_message(m.size_bytes, MTU_BYTES) for m in self.messages), 0
        got = self.sum_of("placed_bytes"), self.sum_of("placed_packets"), self.sum_of("misplaced_packets")
        assert got == wanted, f"bytes, packets, misplaced: {got}, want {wanted}"


def run(
    mode: Mode | Ddc, messages: Sequence[Message], transport: Transport, *, elided: bool = True, profile: QueueProfile = DEEP,
    spines: int = SPINES, loss: str = "", slow_bps: int = RATE_BPS, failures: Sequence[LinkEvent] = (),
) -> Run:
    with ExitStack() as stack:
        fabric = stack.enter_context(make_fabric(elided, profile, spines))
        installed = stack.enter_context(mode.install(fabric))
        if loss:
            lose_cells(fabric, loss)
        fabric.limit_nic(TARGET, slow_bps)
        engine = stack.enter_context(Engine(fabric, messages, transport))
        events = stack.enter_context(LinkEvents(fabric, failures, convergence_ns=CONVERGENCE_NS, followers=[installed]))
        own = stack.enter_context(Netlink(fabric.netlink(TARGET.node).netns))
        probe = DepthProbe(own, fabric.ports[TARGET].ifindex, tbf_parent(fabric.settings[TARGET]))
        depths: list[int] = []

        def sample() -> None:
            events.tick()
            depths.append(probe.read())

        before = snapshot(fabric)
        outcome = engine.run(LIMIT_S, every_ns=us(2) * DILATION, sample=sample)
        done_ns = [(when - outcome.first_ns) / DILATION for when in engine.done_ns()]
        return Run(messages, outcome, engine.ends(), done_ns, difference(before, snapshot(fabric)), installed.counters(), depths)


def lose_cells(fabric: Fabric, how: str) -> None:
    """On the way down from spine0, whose RED gives its place to a netem."""
    for port in next(node for node in fabric.plan.nodes if node.name == "spine0").ports:
        netns = fabric.netlink("spine0").netns
        replace = ["tc", "-n", netns, "qdisc", "replace", "dev", port.port.ifname, "parent", "1:1"]
        done = subprocess.run([*replace, "netem", "limit", "100000", *how.split()], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cell_bytes", [256, 1000])
def test_no_byte_of_a_packet_changes_and_none_overtakes_another(cell_bytes):
    generator = random.Random(7)
    nics = [nic(0, 0), nic(1, 0), nic(4, 0), nic(9, 0), nic(13, 0)]
    with make_fabric(elided=False) as fabric, Ddc(cell_bytes=cell_bytes).install(fabric) as cells, Wire(fabric, nics) as wire:
        sent: dict[tuple[Port, Port], list[bytes]] = {}
        for number in range(600):
            source, target = generator.sample(nics, 2)
            data = frame(fabric, source, target, number, payload(generator, MTU_BYTES))
            sent.setdefault((source, target), []).append(data)
            wire.send(source, data)
        arrived = wire.arrived(600)
        counters = cells.counters()
        for (source, target), frames in sent.items():
            address = frames[0][26:30]
            got = [raw for raw in arrived[target] if raw[26:30] == address]
            assert got == [as_routed(data, fabric, target) for data in frames], f"{source} to {target} differs"
    assert sum(map(len, arrived.values())) == 600
    assert counters.packets_cut > 300 and counters.packets_local > 30, f"{counters.packets_cut} and {counters.packets_local}"


@pytest.mark.parametrize("cell_bytes", [256, 1000])
def test_cells_are_equal_go_round_the_uplinks_and_hold_the_packet(cell_bytes):
    generator = random.Random(5)
    source, target = nic(0, 0), nic(5, 0)
    with make_fabric(elided=False) as fabric, Ddc(cell_bytes=cell_bytes).install(fabric), Wire(fabric, [source, target]) as wire:
        frames = [frame(fabric, source, target, number, payload(generator, MTU_BYTES)) for number in range(100)]
        with CellRecorder(fabric, "leaf0") as recorder:
            for data in frames:
                wire.send(source, data)
            wire.arrived(len(frames))
            cells = recorder.cells()
        packets = put_together(cells)
        for number, data in enumerate(frames):
            routed, got = as_routed(data, fabric, target)[14:], packets[cells[0].nic, number]
            assert got == routed.ljust(len(got), bytes(1)), f"packet {number} is not what its cells hold"
    lengths = {cell.frame_bytes for cell in cells}
    assert lengths == {cell_bytes + CELL_HEADER_BYTES}, f"frames on the uplinks have {lengths} bytes"
    assert len(cells) == sum(cells_of(len(data), cell_bytes) for data in frames)
    uplinks = [int(cell.uplink.ifname.removeprefix("up")) for cell in cells]
    assert uplinks == [(uplinks[0] + at) % SPINES for at in range(len(cells))], f"not in turn: {uplinks[:20]}"


@pytest.mark.parametrize("elided", [True, False], ids=["elided", "full"])
@pytest.mark.parametrize("transport", ["sr", "gbn"])
def test_servers_see_no_reordering_and_uplinks_are_even(transport, elided):
    result = run(Ddc(), permutation(mib(1) + 5), Transport(transport=transport), elided=elided)
    result.assert_exact()
    seen = {name: result.sum_of(name) for name in ("early_packets", "refused_packets", "resent_packets", "duplicate_packets")}
    assert not any(seen.values()), f"{seen} though no packet was lost"
    for leaf in range(LEAVES):
        uneven = Spread([size for port, size in result.cells.bytes.items() if port.node == f"leaf{leaf}"]).max_over_mean
        assert uneven <= EVEN, f"leaf{leaf}: max/mean {uneven:.4f}, allowed {EVEN}"
    assert result.total("dropped_packets") == 0
    assert (result.cells.packets_lost, result.cells.packets_delivered) == (0, result.cells.packets_cut)


def test_elided_and_full_payload_give_the_same_times_and_queue_bytes():
    def seen(elided: bool) -> tuple:
        result = run(Ddc(), permutation(300_005), Transport(), elided=elided)
        return result.done_ns, [(port.sent_packets, port.sent_bytes) for port in result.ports.values()], result.cells

    assert seen(True) == seen(False)


def test_an_incast_waits_at_the_ingress_where_ecmp_marks_and_drops_at_the_egress():
    # a window far above what the shallow buffer holds; ecmp's losses are repaired, so both complete
    transport = Transport(window_packets=128)
    before, after = (run(mode, incast(), transport, profile=SHALLOW) for mode in (Ecmp(), Ddc()))
    for result in (before, after):
        result.assert_exact()
    assert before.total("dropped_packets") > 100 and before.ports[TARGET].marked_packets > 100, (
        f"ecmp: {before.total('dropped_packets')} drops, {before.ports[TARGET].marked_packets} marks: no incast, no test"
    )
    lost = after.total("dropped_packets"), after.total("marked_packets"), after.sum_of("ce_packets")
    assert lost == (0, 0, 0), f"ddc: drops, marks, CE delivered {lost}"
    deepest, limit = max(after.depth_bytes), 4 * FRAME_BYTES
    assert deepest <= limit < max(before.depth_bytes), f"egress queue: {deepest} bytes, ecmp {max(before.depth_bytes)}, limit {limit}"
    wait = after.cells.waits[nic(0, 0)]
    window_ns = 8 * 128 * FRAME_BYTES * 8e9 / RATE_BPS  # what eight windows take at the port's rate
    assert 0.8 * window_ns < wait.max_ns < 1.1 * window_ns, f"longest wait {wait.max_ns:,.0f} ns, windows {window_ns:,.0f} ns"
    total_ns = sum(m.size_bytes for m in after.messages) / MTU_BYTES * FRAME_BYTES * 8e9 / RATE_BPS
    assert max(after.done_ns) < 1.02 * total_ns, f"{max(after.done_ns):,.0f} ns; the port alone needs {total_ns:,.0f}"


def test_a_port_that_is_slower_than_its_credits_marks_packets_and_drops_none():
    result = run(Ddc(), incast(), Transport(window_packets=32), slow_bps=RATE_BPS // 2)
    result.assert_exact()
    marked, dropped = result.ports[TARGET].marked_packets, result.total("dropped_packets")
    assert marked > 100 and result.sum_of("ce_packets") == marked, f"{marked} marked, {result.sum_of('ce_packets')} CE delivered"
    assert dropped == 0, f"{dropped} dropped: what is put together again must be IP to the port's RED"


def test_cells_wait_where_the_fabric_is_slower_than_its_servers():
    slow, fast = (run(Ddc(fabric_speedup=speedup), permutation(mib(8)), Transport()) for speedup in (1.0, 1.25))
    longer = max(slow.done_ns) / max(fast.done_ns)
    assert longer > 1.03, f"{longer:.3f} times as long: the uplinks were not full, no test"
    for result in (slow, fast):
        result.assert_exact()
        seen = result.total("dropped_packets"), result.sum_of("resent_packets")
        assert seen == (0, 0), f"drops, resent {seen}"


@pytest.mark.parametrize("credit_rtt_ns", [0, us(1), us(3)])
@pytest.mark.parametrize("size_bytes", [1, 100_000])
def test_an_idle_fabric_adds_the_credits_round_trip_and_less_than_a_frames_time(size_bytes, credit_rtt_ns):
    frame_ns = FRAME_BYTES * 8e9 / RATE_BPS  # a port's shaper lets the end of a short packet go earlier than a credit its start
    message = [Message(source=nic(0, 0), target=nic(PER_LEAF, 0), size_bytes=size_bytes)]
    plain, cells = (run(mode, message, Transport()).done_ns[0] for mode in (Ecmp(), Ddc(credit_rtt_ns=credit_rtt_ns)))
    extra = cells - plain - credit_rtt_ns
    assert -1 <= extra < frame_ns, f"{cells - plain:.1f} ns added, the credit takes {credit_rtt_ns}, a frame {frame_ns:.0f}"


@pytest.mark.parametrize("cell_bytes", [256, 520, 2080])
def test_the_cell_tax_is_what_the_formula_says(cell_bytes):
    packets = 256
    message = [Message(source=nic(0, 0), target=nic(PER_LEAF, 0), size_bytes=packets * MTU_BYTES)]
    result = run(Ddc(cell_bytes=cell_bytes), message, Transport(ack_every=ACK_EVERY))
    acks = packets // ACK_EVERY
    cells = packets * cells_of(FRAME_BYTES, cell_bytes) + acks
    assert result.cells.cells_sent == cells, f"{result.cells.cells_sent} cells, want {cells}"
    data, ack = packets * FRAME_BYTES, acks * ACK_BYTES
    tax = (data * (1 + cell_tax(FRAME_BYTES, cell_bytes)) + ack * (1 + cell_tax(ACK_BYTES, cell_bytes))) / (data + ack) - 1
    assert result.cells.cell_tax == pytest.approx(tax), f"{result.cells.cell_tax:.4f}, want {tax:.4f}"
    on_links = sum(result.ports[port].sent_bytes for port in result.cells.uplinks)
    assert on_links == pytest.approx((1 + tax) * (data + ack)), "the queues count other bytes than the cells have"


@pytest.mark.parametrize("transport", ["sr", "gbn"])
@pytest.mark.parametrize("elided", [True, False], ids=["elided", "full"])
def test_a_lost_cell_loses_its_packet_and_the_transport_repairs_it(transport, elided):
    mode = Ddc(reassembly_timeout_ns=us(10))
    result = run(mode, permutation(mib(1)), Transport(transport=transport, rto_ns=us(100)), elided=elided, loss="loss 0.1%")
    result.assert_exact()
    cells, lost, resent = result.total("dropped_packets"), result.cells.packets_lost, result.sum_of("resent_packets")
    assert cells > 10, f"{cells} cells lost: no test"
    assert 0.8 * cells <= lost <= cells, f"{lost} packets given up for {cells} lost cells"
    assert resent >= 0.5 * lost, f"{resent} packets sent again for {lost} lost, of which a fifth are ACKs"
    assert result.cells.packets_cut == result.cells.packets_delivered + lost
    assert result.cells.held_packets_max > 0, "no packet waited for one that had lost a cell"
    assert result.cells.cells_refused == 0, f"{result.cells.cells_refused} cells found no room"


def test_duplicate_and_late_cells_do_no_harm():
    result = run(Ddc(), permutation(300_000), Transport(transport="gbn"), loss="duplicate 5% delay 500us 400us")
    result.assert_exact()
    assert result.cells.cells_twice > 100, f"{result.cells.cells_twice} duplicates: no test"
    seen = result.sum_of("refused_packets"), result.sum_of("resent_packets"), result.sum_of("duplicate_packets")
    assert seen == (0, 0, 0), f"refused, resent, duplicate packets at the servers: {seen}"


def test_a_dead_link_is_sprayed_round_and_used_again():
    up = Port("leaf0", "up1")
    events = [LinkEvent(at_ns=us(30), port=up), LinkEvent(at_ns=us(150), port=up, up=True)]
    result = run(Ddc(reassembly_timeout_ns=us(10)), permutation(mib(8)), Transport(rto_ns=us(100)), failures=events)
    result.assert_exact()
    shares = [result.cells.packets[Port("leaf0", f"up{at}")] for at in range(SPINES)]
    others = (sum(shares) - shares[1]) / (SPINES - 1)
    assert 0.2 < shares[1] / others < 0.9, f"cells by uplink {shares}: the one that was down a while should have some less"
    assert result.sum_of("resent_packets") > 0, "cells on the dying link were lost"
    # other leaves learn of it CONVERGENCE_NS later; until then what they send that way ends at the spine
    most = 1.05 * Ddc().fabric_speedup * RATE_BPS * CONVERGENCE_NS / 8e9 / (Ddc().cell_bytes + CELL_HEADER_BYTES)
    assert 0 < result.cells.cells_astray < most, f"{result.cells.cells_astray} cells astray, the link carries {most:.0f} meanwhile"


def test_several_links_to_one_spine_share_its_cells():
    result = run(Ddc(), permutation(mib(1)), Transport(transport="gbn"), spines=2)
    result.assert_exact()
    assert result.sum_of("resent_packets") == 0
    down = [cells for port, cells in result.cells.cells.items() if port.node.startswith("spine")]
    assert max(down) <= EVEN * sum(down) / len(down), f"cells down from the spines: {down}"


def test_after_the_block_the_fabric_is_as_planned():
    message = [Message(source=nic(0, 0), target=nic(PER_LEAF, 0), size_bytes=mib(1))]
    with make_fabric() as fabric:
        with Ddc().install(fabric):
            speeds = {queue.read(fabric.netlink("leaf0"))[fabric.ports[Port("leaf0", "up0")].ifindex, queue.TBF_HANDLE].knobs["rate"]}
        assert speeds != {fabric.scale.kernel_bps(RATE_BPS) // 8}, "the links between switches were not made faster"
        for node in fabric.plan.nodes:
            names = {port.ifindex: str(port.port) for port in node.ports}
            wanted = [queue.setting(port, fabric.scale, fabric.plan.frame_bytes, True, elided=fabric.plan.elided_sizes)
                      for port in node.ports]
            wrong = queue.mismatches(wanted, queue.read(fabric.netlink(node.name)), names)
            assert not wrong, wrong
            strangers = {state.ifname for state in link.read(fabric.netlink(node.name)).values()} - {"lo"}
            assert strangers == {port.port.ifname for port in node.ports}
        with Engine(fabric, message, Transport()) as engine:
            outcome = engine.run(LIMIT_S)
        assert outcome.left == 0
