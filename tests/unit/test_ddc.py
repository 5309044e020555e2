"""Promises of lb=ddc before a kernel is touched: cells add up, mistakes are named, every box and NIC has its number."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import MissingFeature, TopologyError, UsageError
from emu.switch import ddc, ddc_tables
from emu.switch.cells import cell_tax, cells_of
from emu.switch.ddc import Ddc, check_cells, require_features
from emu.switch.ddc_counters import CreditWait, DdcCounters, made_packets
from emu.switch.modes import mode
from emu.topology.model import Port
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps


def plan(**changed):
    shape = {"servers": 6, "gpus_per_server": 2, "wiring": "single", "leaf_down": 4, "leaf_up": 4, "spines": 2} | changed
    return make_plan(SpineLeaf(rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=1 << 20), **shape).topology(), seed=1)


@given(st.integers(42, 4174), st.integers(128, 2112))
def test_cells_hold_the_packet_and_no_more_than_one_cell_of_padding(frame_bytes, cell_bytes):
    room = cells_of(frame_bytes, cell_bytes) * cell_bytes
    assert 0 <= room - (frame_bytes - 14) < cell_bytes
    assert cell_tax(frame_bytes, cell_bytes) == pytest.approx((room + 14 * room // cell_bytes) / frame_bytes - 1)


@pytest.mark.parametrize(
    "frame_bytes, cell_bytes, cells, tax", [(4174, 256, 17, 0.0997), (4174, 2080, 2, 0.0034), (62, 256, 1, 3.355)]
)
def test_the_cell_tax_of_known_sizes(frame_bytes, cell_bytes, cells, tax):
    assert cells_of(frame_bytes, cell_bytes) == cells
    assert cell_tax(frame_bytes, cell_bytes) == pytest.approx(tax, abs=5e-4)


@pytest.mark.parametrize(
    "setting, says",
    [
        ({"cell_bytes": 64}, "want 128 to 2112"),
        ({"cell_bytes": 4096}, "want 128 to 2112"),
        ({"credit_rtt_ns": -1}, "credit_rtt_ns=-1"),
        ({"reassembly_timeout_ns": 0}, "reassembly_timeout_ns=0"),
        ({"credit_speed": 1.1}, "at most 1"),
        ({"fabric_speedup": 0.9}, "want 1 to 4"),
    ],
)
def test_a_setting_that_no_cell_fabric_has_is_refused(setting, says):
    with pytest.raises(UsageError, match=says):
        Ddc(**setting)


@pytest.mark.parametrize(
    "cell_bytes, frame_bytes, says",
    [(128, 9000, "want 141 or more"), (1024, 590, "at most 576"), (256, 4174, None)],
)
def test_cells_that_dont_fit_the_packets_are_refused_with_what_would(cell_bytes, frame_bytes, says):
    if says is None:
        assert check_cells(Ddc(cell_bytes=cell_bytes), frame_bytes) is None
        return
    with pytest.raises(UsageError, match=says) as refused:
        check_cells(Ddc(cell_bytes=cell_bytes), frame_bytes)
    good = int("".join(filter(str.isdigit, says)))
    assert check_cells(Ddc(cell_bytes=good), frame_bytes) is None, refused.value


@pytest.mark.parametrize(
    "lacks, marker, cpus, says",
    [("unknown qdisc", "none", 1, "sch_fq"), (None, "bpf", 1, "sch_red"), (None, "red", 2, "one CPU"), (None, "red", 1, None)],
)
def test_a_kernel_that_cant_is_named_with_the_way_out(monkeypatch, lacks, marker, cpus, says):
    monkeypatch.setattr(ddc, "probe", lambda: SimpleNamespace(lacks=lambda _name: lacks))
    monkeypatch.setattr(ddc.os, "cpu_count", lambda: cpus)
    fabric = SimpleNamespace(marker=marker)
    if says is None:
        assert require_features(fabric) is None
        return
    with pytest.raises(MissingFeature, match=says) as refused:
        require_features(fabric)
    assert refused.value.exit_code == 3
    assert "\n" not in str(refused.value) and str(refused.value).endswith("use --clock virtual")


def test_every_nic_has_a_number_of_its_own_and_every_leaf_its_ports():
    members = ddc_tables.Members(plan())
    numbers = [members.nic_number(port) for leaf in members.leaves for port in leaf.down]
    assert len(set(numbers)) == len(numbers) == 12 and max(numbers) == members.nics - 1
    assert [leaf.number for leaf in members.leaves] == [0, 1, 2]
    assert len(members.links) == 2 * 3 * 4
    taken = {port.ifindex for node in plan().nodes for port in node.ports}
    assert members.first_free_ifindex not in taken and members.first_free_ifindex > max(taken)


def test_a_leaf_reaches_others_by_all_uplinks_and_a_spine_each_leaf_by_its_own_links():
    members = ddc_tables.Members(plan())
    for node in members.switches:
        reach = members.reach(node, node.routes)
        peers = {port.ifindex: port.peer.node for port in node.ports}
        for leaf, ports in zip(members.leaves, reach, strict=True):
            towards = [peers[port] for port in ports]
            if leaf.name == node.name:
                assert towards == []
            elif node.role == "leaf":
                assert sorted(towards) == ["spine0", "spine0", "spine1", "spine1"]
            else:
                assert towards == [leaf.name] * 2


def test_a_way_over_another_leaf_is_none():
    members = ddc_tables.Members(plan())
    spine = next(node for node in members.switches if node.role == "spine")
    around = tuple(port.port.ifname for port in spine.ports if port.peer.node != "leaf0")
    routes = [replace(route, via=around) if route.prefix == members.numbers.prefixes[0] else route for route in spine.routes]
    before, after = members.reach(spine, spine.routes), members.reach(spine, routes)
    assert len(before[0]) == 2 and after == [(), *before[1:]], f"{before} became {after}"


def test_a_fabric_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(ddc_tables, "PAIRS_MAX", 35)
    with pytest.raises(TopologyError, match="36 pairs of leaf and NIC; lb=ddc has room for 35"):
        ddc_tables.Members(plan())
    monkeypatch.setattr(ddc_tables, "PAIRS_MAX", 36)
    assert ddc_tables.Members(plan()).pairs == 36


def test_ddc_is_a_mode_like_others():
    assert mode("ddc") == Ddc()
    assert mode("ddc", cell_bytes=512).cell_bytes == 512


def test_a_leaf_has_made_the_cells_it_cut_and_taken_in_those_it_put_together():
    ingress = SimpleNamespace(packets_in=10, cells_out=170, cells_no_path=0, cells_in=0, packets_out=0)
    egress = SimpleNamespace(packets_in=0, cells_out=0, cells_no_path=0, cells_in=170, packets_out=10)
    assert (made_packets(ingress), made_packets(egress)) == (160, -160)
    ingress.cells_out, ingress.cells_no_path = 165, 5
    assert made_packets(ingress) == 160, "cells that had no way are missed: 165 went out"


def test_counters_add_up_to_ratios():
    up = [Port("leaf0", "up0"), Port("leaf0", "up1")]
    waits = {Port("srv0", "rail0"): CreditWait(3, 3000.0, 2000.0), Port("srv1", "rail0"): CreditWait(1, 5000.0, 5000.0)}
    counters = DdcCounters(
        packets_cut=2, packets_local=0, packets_delivered=2, packets_lost=0, cells_sent=34, cells_received=34, cells_late=0,
        cells_twice=0, cells_refused=0, cells_astray=0, held_packets_max=0, cut_bytes=2 * 4174, cell_bytes=256,
        cells={up[0]: 17, up[1]: 17, Port("spine0", "down0"): 34}, uplinks=tuple(up), waits=waits,
    )
    assert counters.cell_tax == pytest.approx(cell_tax(4174, 256))
    assert counters.bytes == {up[0]: 17 * 270, up[1]: 17 * 270}
    assert (counters.credit_wait_mean_ns, counters.credit_wait_max_ns) == (2000.0, 5000.0)
    assert counters.row()["credit_wait_max_us"] == 5.0
