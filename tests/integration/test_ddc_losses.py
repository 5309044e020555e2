"""Promises of the cell fabric where cells are lost, doubled or late: messages complete, exact, and packets stay in order."""

from __future__ import annotations

import pytest

from emu.fabric.failure import LinkEvent
from emu.nic.transport import Transport
from emu.switch.cells import CELL_HEADER_BYTES
from emu.switch.ddc import Ddc
from emu.topology.model import Port
from emu.units import mib, us
from tests.integration.ddc_run import (
    CONVERGENCE_NS, RATE_BPS, SPINES, permutation, run,
)

pytestmark = pytest.mark.needs_virtual_clock


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
    assert 0 < result.cells.cells_astray < most, (
        f"{result.cells.cells_astray} cells astray; the link carries {most:.0f} in that time"
    )
