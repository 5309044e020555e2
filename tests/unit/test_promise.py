"""Promises about comparing the controller's loads with the links': headers are added, both ways and dead cables looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from emu.measure.counters import PortCounters
from emu.measure.navigation import Promise
from emu.switch.path_navigation import Navigation, Path
from emu.topology.model import Link, Port
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

MTU, FRAME, PACKETS = 4096, 4096 + 64 + 14, 1000
SHAPE = SpineLeaf(servers=2, gpus_per_server=1, wiring="single", leaf_down=1, leaf_up=2, rate_bps=gbps(400),
                  queue=QueueProfile(buffer_bytes=mib(1)))
PLAN = make_plan(SHAPE.topology(), seed=1)
NAVIGATION = Navigation({"qp": Path(1, 1)}, {("leaf0", 1): PACKETS * MTU}, {("leaf1", 1): PACKETS * MTU}, PACKETS * MTU)


def cable(name: str) -> Link:
    return next(link for link in PLAN.topology.links if Port.parse(name) in (link.a, link.b))


def row(sent: dict[str, int], *dead: Link, navigation: Navigation = NAVIGATION) -> dict:
    counters = {port: PortCounters(sent_bytes=sent.get(str(port), 0)) for port in PLAN.ports}
    return Promise(navigation, SimpleNamespace(fabric=SimpleNamespace(plan=PLAN), delta=counters), dead).row()


def test_a_promise_that_is_kept_is_off_by_nothing_and_acknowledgements_show():
    kept = row({"leaf0:up1": PACKETS * FRAME, "spine1:down1": PACKETS * FRAME * 1.004, "leaf1:up1": 70})
    assert (kept["uplink_off"], kept["downlink_off"]) == (0, pytest.approx(0.004))
    assert (kept["uplink_max_bytes"], kept["promised_max_bytes"], kept["flows"]) == (PACKETS * FRAME, PACKETS * MTU, 1)


@pytest.mark.parametrize("share, off", [(0.5, -0.5), (2, 1.0)])
def test_a_link_with_less_or_more_than_promised_is_off(share, off):
    found = row({"leaf0:up1": PACKETS * FRAME * share, "spine1:down1": PACKETS * FRAME})
    assert found["uplink_off"] == pytest.approx(off) and found["downlink_off"] == 0


def test_a_busiest_link_other_than_the_promised_counts():
    """The same two links as before are as promised, but a cable that nobody spoke of is busier."""
    found = row({"leaf0:up1": PACKETS * FRAME, "spine1:down1": PACKETS * FRAME, "spine0:down0": 3 * PACKETS * FRAME})
    assert found["downlink_off"] == pytest.approx(2.0)


def test_bytes_of_both_ends_of_a_dead_cable_are_told():
    sent = {"leaf0:up1": PACKETS * FRAME, "leaf0:up0": 5, "spine0:down0": 7}
    assert row(sent, cable("leaf0:up0"))["dead_link_bytes"] == 12
    assert row(sent)["dead_link_bytes"] == 0


def test_without_flows_between_leaves_any_byte_is_too_many():
    nothing = Navigation({}, {}, {}, 0)
    assert row({}, navigation=nothing)["uplink_off"] == 0
    assert row({"leaf0:up0": 3}, navigation=nothing)["uplink_off"] == 3
