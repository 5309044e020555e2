"""Promise of payload=elided: it gives what payload=full gives, to the digit: times, marks, drops, bytes of every queue."""

from __future__ import annotations

import dataclasses

import pytest

from emu.fabric.fabric import Fabric
from emu.measure.counters import difference, snapshot
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message, with_credit
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib, ms

pytestmark = pytest.mark.needs_red  # and with it, in the lab kernel, the virtual clock

SERVERS, GPUS, LIMIT_S = 4, 2, 60
ECN = EcnProfile(kmin_bytes=200_000, kmax_bytes=800_000, pmax=0.2)
DEEP, SHALLOW = QueueProfile(buffer_bytes=mib(16), ecn=ECN), QueueProfile(buffer_bytes=900_000, ecn=ECN)
SIZES = (mib(2) + 5, 100, 4096, mib(1))


def ring() -> list[Message]:
    """To the server after the next: across a spine."""
    return with_credit(
        Message(source=nic(server, gpu), target=nic((server + 2) % SERVERS, gpu), size_bytes=size)
        for size in SIZES for server in range(SERVERS) for gpu in range(GPUS)
    )


def incast() -> list[Message]:
    return with_credit(
        Message(source=nic(server, gpu), target=nic(0, gpu), size_bytes=mib(4) + 7)
        for server in range(1, SERVERS) for gpu in range(GPUS)
    )


def outcome(elided: bool, messages: list[Message], queue: QueueProfile, transport: Transport, *, sized: bool = True) -> dict:
    """What it came to; sized=False: without the size tables."""
    shape = SpineLeaf(servers=SERVERS, gpus_per_server=GPUS, wiring="rail", leaf_down=2, leaf_up=2, rate_bps=gbps(400),
                      queue=queue)
    plan, paced = make_plan(shape.topology(), seed=1), transport.cc == "dcqcn"
    planned = Fabric(plan, Scale(dilation=100), elided=elided, paced=paced)
    if not sized:
        planned.settings = {port: dataclasses.replace(setting, elided=None) for port, setting in planned.settings.items()}
    with planned as fabric:
        before = snapshot(fabric)
        with Engine(fabric, messages, transport) as engine:
            ran, ends = engine.run(LIMIT_S), engine.ends()
            done_ns = [when - ran.first_ns for when in engine.done_ns()]
        queues = difference(before, snapshot(fabric))
    assert ran.left == 0, f"{ran.left} of {len(messages)} messages are not complete after {LIMIT_S} s"
    fields = next(iter(ends.values()))._fields
    counted = [name for name in fields if name.endswith(("_packets", "_sent", "_received", "timeouts"))]
    return {
        "completion": done_ns,
        "queues": {port: (q.sent_packets, q.sent_bytes, q.marked_packets, q.dropped_packets) for port, q in queues.items()},
        "ends": {key: {name: getattr(end, name) for name in counted} for key, end in ends.items()},
    }


CASES = {
    "ring": (ring, DEEP, Transport()),
    "incast": (incast, DEEP, Transport(window_packets=256, rto_ns=ms(5))),
    "incast with drops, sr": (incast, SHALLOW, Transport(reorder_packets=16, rto_ns=ms(1))),
    "incast with drops, gbn": (incast, SHALLOW, Transport(transport="gbn", rto_ns=ms(1))),
    "incast with dcqcn": (incast, DEEP, Transport(cc="dcqcn", rto_ns=ms(5))),
    "ring with icrc": (ring, DEEP, Transport(icrc=True)),
}


@pytest.mark.parametrize(("messages", "queue", "transport"), CASES.values(), ids=CASES.keys())
def test_elided_and_full_payload_give_the_same_to_the_digit(messages, queue, transport):
    elided, full = (outcome(elided, messages(), queue, transport) for elided in (True, False))
    for what in elided:
        both = zip(elided[what].items(), full[what].items(), strict=True) if what != "completion" else \
            zip(enumerate(elided[what]), enumerate(full[what]), strict=True)
        differ = [(one, other) for one, other in both if one != other]
        assert not differ, f"{what}: {len(differ)} differ, the first: elided {differ[0][0]}, full {differ[0][1]}"
    marked, dropped = (sum(q[at] for q in full["queues"].values()) for at in (2, 3))
    print(f"{max(full['completion'])} ns, {sum(q[1] for q in full['queues'].values())} bytes, {marked} marked, {dropped} dropped")
    if messages is incast:
        assert marked > 0, "nothing was marked: no test"
    if queue is SHALLOW:
        assert dropped > 0, "nothing was dropped: no test"


def test_it_is_the_size_table_that_makes_them_equal():
    with_table, without = (outcome(True, ring(), DEEP, Transport(), sized=sized)["completion"] for sized in (True, False))
    assert max(without) < max(with_table) / 10, f"{max(without)} ns without size tables, {max(with_table)} with them"
