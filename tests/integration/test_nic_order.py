"""Promises about when and in which order packets leave a server: all NICs begin at once, and no queue pair overtakes itself."""

from __future__ import annotations

import pytest

from emu.fabric.fabric import Fabric
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, ms, us

pytestmark = pytest.mark.needs_virtual_clock  # and with it fq and netem

MTU_BYTES, FRAME_BYTES, RATE_BPS, DILATION, DELAY_NS = 4096, 4174, gbps(400), 100, 2000
LIMIT_S = 60


def make_fabric(gpus: int, *, paced: bool, delay_ns: int = DELAY_NS) -> Fabric:
    """Two servers under one leaf."""
    shape = SpineLeaf(servers=2, gpus_per_server=gpus, wiring="single", leaf_down=2 * gpus, leaf_up=0, rate_bps=RATE_BPS,
                      delay_ns=delay_ns, queue=QueueProfile(buffer_bytes=mib(16)))
    return Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=DILATION), elided=True, paced=paced)


@pytest.mark.parametrize("cc", ["none", "dcqcn"])
@pytest.mark.parametrize("gpus, qps, packets", [(1, 16, 8), (8, 8, 8), (8, 2, 32)])
def test_all_nics_of_a_server_send_from_the_first_moment(cc, gpus, qps, packets):
    """Windows hold all there is to send, so that it takes its time on the line, and two cables: no NIC waits for an ACK first."""
    messages = [Message(source=nic(1, gpu), target=nic(0, gpu), size_bytes=packets * MTU_BYTES, channel=channel)
                for gpu in range(gpus) for channel in range(qps)]
    transport = Transport(cc=cc, window_packets=packets, rto_ns=ms(5))
    with make_fabric(gpus, paced=cc == "dcqcn") as fabric, Engine(fabric, messages, transport) as engine:
        outcome = engine.run(LIMIT_S)
    took_us = outcome.elapsed_ns / DILATION / 1000
    least_us = qps * packets * FRAME_BYTES * 8e6 / RATE_BPS + 2 * DELAY_NS / 1000
    assert outcome.left == 0
    assert 0.99 * least_us <= took_us <= 1.05 * least_us, f"{took_us:.2f} us; line and cables need {least_us:.2f} us"


def test_with_departure_times_queue_pairs_of_one_nic_do_not_overtake_themselves():
    messages = [Message(source=nic(1, 0), target=nic(0, 0), size_bytes=mib(1), channel=channel) for channel in range(4)]
    with make_fabric(1, paced=True, delay_ns=0) as fabric:  # so that ACKs come while the first packets wait
        assert fabric.paced, "this kernel has no fq"
        with Engine(fabric, messages, Transport(transport="sr", cc="dcqcn", window_packets=64, rto_ns=us(5000))) as engine:
            outcome, ends = engine.run(LIMIT_S), engine.ends().values()
    early, arrived = sum(end.early_packets for end in ends), sum(end.placed_packets for end in ends)
    assert outcome.left == 0
    assert early == 0, f"{early} of {arrived} packets came before one that was sent before them"
