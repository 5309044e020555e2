"""Promises of the read-back: a knob of a queue that somebody changes is named, with what was asked and what the kernel has."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Iterator

import pytest

from emu.fabric import queue
from emu.fabric.fabric import Fabric
from emu.scale import Scale
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, us

SHAPE = SpineLeaf(servers=2, gpus_per_server=1, wiring="rail", leaf_down=2, leaf_up=1, rate_bps=gbps(400),
                  queue=QueueProfile(buffer_bytes=1 << 20))
NIC, ENTRIES, PACKETS = nic(0, 0), 4175, 1 << 20


@pytest.fixture
def make_fabric() -> Iterator[Callable[..., Fabric]]:
    """make_fabric(delay_ns): built, with NICs that elide payloads and keep departure times."""
    built: list[Fabric] = []

    def make(delay_ns: int = 0) -> Fabric:
        topology = dataclasses.replace(SHAPE, delay_ns=delay_ns).topology()
        built.append(Fabric(make_plan(topology, seed=1), Scale(dilation=100), elided=True, paced=True).__enter__())
        return built[-1]

    yield make
    for fabric in built:
        fabric.stop()


def differences(fabric: Fabric, port: Port) -> list[str]:
    wanted = fabric.settings[port]
    return queue.mismatches([wanted], queue.read(fabric.netlink(port.node)), {wanted.ifindex: "port"})


def change(fabric: Fabric, *words: str) -> None:
    command = ["tc", "-n", fabric.netlink(NIC.node).netns, "qdisc", "change", "dev", NIC.ifname, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs_red  # and with it, in the lab kernel, fq
@pytest.mark.parametrize(("option", "knob"), [("limit", "limit"), ("flow_limit", "flow_limit")])
def test_a_changed_limit_of_fq_is_named(make_fabric, option, knob):
    fabric = make_fabric()
    assert fabric.paced and differences(fabric, NIC) == []
    change(fabric, "parent", "5:2", "handle", "4:", "fq", option, "99")
    assert differences(fabric, NIC) == [f"port qdisc 4: {knob} asked {PACKETS}, kernel keeps 99"]


@pytest.mark.needs_root
def test_a_size_table_of_another_length_is_named(make_fabric):
    fabric = make_fabric()
    assert differences(fabric, NIC) == []
    shorter = dataclasses.replace(fabric.settings[NIC], elided=(78, 3000))
    queue.change_rate(fabric.netlink(NIC.node), shorter, "test")
    assert differences(fabric, NIC) == [f"port qdisc 1: size_entries asked {ENTRIES}, kernel keeps 3001"]


@pytest.mark.needs_root
def test_a_size_table_that_is_lost_is_named(make_fabric):
    """tc takes it away with any change that doesn't mention it."""
    fabric = make_fabric()
    change(fabric, "root", "handle", "1:", "tbf", "rate", "4gbit", "burst", "4174", "limit", "1048576")
    assert f"port qdisc 1: size_entries asked {ENTRIES}, kernel keeps 0" in differences(fabric, NIC)


@pytest.mark.needs_root
def test_a_size_table_that_nobody_asked_for_is_named(make_fabric):
    fabric = make_fabric()
    plain = dataclasses.replace(fabric.settings[NIC], elided=None)
    named = queue.mismatches([plain], queue.read(fabric.netlink(NIC.node)), {plain.ifindex: "port"})
    assert named == [f"port qdisc 1: size_entries asked 0, kernel keeps {ENTRIES}"]


@pytest.mark.needs_netem
def test_delay_limit_and_size_table_of_netem_are_named(make_fabric):
    fabric = make_fabric(delay_ns=us(1))
    assert differences(fabric, NIC) == []
    change(fabric, "root", "handle", "3:", "netem", "delay", "32us", "limit", "77")
    assert differences(fabric, NIC) == [
        "port qdisc 3: delay_ns asked 100000, kernel keeps 32000",
        f"port qdisc 3: limit asked {PACKETS}, kernel keeps 77",
        f"port qdisc 3: size_entries asked {ENTRIES}, kernel keeps 0",
    ]
