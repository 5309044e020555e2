"""Promises about making messages: even shares, no empty one, and a schedule's transfers on the NICs of their rails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.collectives.placement import Placement
from emu.collectives.ring import ring_all_reduce
from emu.errors import UsageError
from emu.nic.messages import from_pairs, from_schedule
from emu.topology.model import nic

PAIRS = [(nic(0, 0), nic(1, 0)), (nic(1, 0), nic(0, 0))]


@given(st.integers(1, 10_000_000), st.integers(1, 128))
def test_the_shares_of_the_queue_pairs_are_even_and_add_up_and_none_is_empty(size_bytes, qps):
    found = from_pairs(PAIRS, size_bytes, qps)
    for source, target in PAIRS:
        shares = {message.channel: message.size_bytes for message in found if message.source == source}
        assert sum(shares.values()) == size_bytes, f"{sum(shares.values())} of {size_bytes} bytes in {qps} shares"
        assert len(shares) == min(qps, size_bytes) and max(shares.values()) - min(shares.values()) <= 1, shares
        assert {message.target for message in found if message.source == source} == {target}


def test_a_ring_over_two_servers_goes_from_rail_to_rail_and_waits_as_its_schedule_says():
    schedule = ring_all_reduce(Placement(4, 2), 800, channels=2, only_scale_out=True)
    found = from_schedule(schedule)
    assert [message.after for message in found] == [transfer.after for transfer in schedule.transfers]
    assert [message.size_bytes for message in found] == [transfer.size_bytes for transfer in schedule.transfers]
    for message, transfer in zip(found, schedule.transfers, strict=True):
        rails = message.source.ifname, message.target.ifname
        assert rails == tuple(f"rail{rail}" for rail in transfer.rails), f"{transfer}: {rails}"
        assert {message.source.node, message.target.node} == {"srv0", "srv1"}


def test_a_transfer_inside_a_server_is_no_nics_and_refused():
    with pytest.raises(UsageError) as error:
        from_schedule(ring_all_reduce(Placement(4, 2), 800, channels=1))
    assert "a transfer over the scale-up domain or to a switch is no NIC's; leave it out" in str(error.value)
