"""Promises of the cell fabric: servers see a router with a short queue, and what it costs is what the formula says."""

from __future__ import annotations

import random

import pytest

from emu.fabric import link, queue
from emu.measure.uplinks import Spread
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.switch.cells import CELL_HEADER_BYTES, cell_tax, cells_of
from emu.switch.ddc import Ddc
from emu.switch.ecmp import Ecmp
from emu.topology.model import Port, nic
from emu.units import mib, us
from tests.integration.ddc_run import (
    FRAME_BYTES, LEAVES, LIMIT_S, MTU_BYTES, PER_LEAF, RATE_BPS, SHALLOW, SPINES, TARGET, incast, make_fabric, permutation, run,
)
from tests.integration.ddc_wire import CellRecorder, Wire, as_routed, frame, payload, put_together

pytestmark = pytest.mark.needs_virtual_clock

ACK_BYTES, ACK_EVERY = 62, 4
EVEN = 1.02


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
    hashed = max(before.depth_bytes)
    assert deepest <= limit < hashed, f"egress queue: {deepest} bytes, limit {limit}, under ecmp {hashed}"
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


def test_a_port_that_all_want_holds_back_no_packet_for_another():
    """The one NIC under leaf1 that sends to an idle port is as fast as if it were alone."""
    own = Message(source=nic(7, 0), target=nic(9, 0), size_bytes=mib(1))
    messages = [own], [own, *incast(senders=3)]
    alone, among = (run(Ddc(credit_rtt_ns=0), each, Transport()).done_ns[0] for each in messages)
    assert among == pytest.approx(alone, abs=1), f"{among:,.0f} ns beside an incast, {alone:,.0f} alone"


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
            uplink = fabric.ports[Port("leaf0", "up0")].ifindex, queue.TBF_HANDLE
            speed = queue.read(fabric.netlink("leaf0"))[uplink].knobs["rate"]
        planned = fabric.scale.kernel_bps(RATE_BPS) // 8
        assert speed > 1.1 * planned, f"a link between switches has {speed} bytes/s, planned {planned}: not made faster"
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
