"""Promises of the eBPF NIC: packet by packet it answers as the model of the transport does, losses and all."""

from __future__ import annotations

from itertools import accumulate

import pytest

from emu.fabric.fabric import Fabric
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.roce.reliable import Receiver, Sender
from emu.scale import Scale
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, ms
from tests.integration.nic_wire import ACK, WRITE_IMM, Frame, Recorder

pytestmark = pytest.mark.needs_root

RECEIVER, SENDERS = nic(0, 0), (nic(1, 0), nic(2, 0), nic(3, 0))
SIZES = (300_000, 1, 4097, 700_001)
SHALLOW_BYTES = 60_000  # three senders fill it: packets are dropped in bursts
LIMIT_S = 60
TRIALS = 5


def record(transport: str, at: Port) -> tuple[list[Frame], Engine]:
    """What passed `at` in a run that lost packets: on a busy host the senders may start one after the other and lose none."""
    for _ in range(TRIALS):
        frames, engine = record_once(transport, at)
        if sum(qp.resent_packets for qp in engine.counters.values()):
            return frames, engine
    raise AssertionError(f"{TRIALS} runs lost nothing: no test")


def record_once(transport: str, at: Port) -> tuple[list[Frame], Engine]:
    """What passed `at` while three NICs sent to one through a buffer that is too small."""
    shape = SpineLeaf(servers=4, gpus_per_server=1, wiring="rail", leaf_down=4, leaf_up=0, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=SHALLOW_BYTES))
    messages = [Message(source=source, target=RECEIVER, size_bytes=size) for size in SIZES for source in SENDERS]
    setting = Transport(transport=transport, window_packets=64, reorder_packets=8, rto_ns=ms(0.2))
    with Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=1000, catch_up_ns=500_000), elided=True) as fabric:
        with Recorder(fabric, at) as recorder, Engine(fabric, messages, setting) as engine:
            outcome = engine.run(LIMIT_S)
            assert outcome.left == 0, f"{outcome.left} messages are not complete after {LIMIT_S} s"
            engine.counters = engine.ends()
            return list(recorder.frames()), engine


def packet_ends() -> list[int]:
    return list(accumulate(-(-size // 4096) for size in SIZES))


@pytest.mark.parametrize("transport", ["sr", "gbn"])
def test_the_receiver_answers_every_packet_as_its_model(transport):
    frames, engine = record(transport, RECEIVER)
    for sender in SENDERS:
        own, peer = engine.work.ends[RECEIVER, sender, 0], engine.work.ends[sender, RECEIVER, 0]
        model = Receiver(packet_ends(), transport == "sr")
        arrived = [f for f in frames if not f.sent and f.qpn == own.qpn and f.opcode == WRITE_IMM]
        wanted = [answer for f in arrived if (answer := model.on_data(f.psn, f.asks))]
        got = [f.answer() for f in frames if f.sent and f.qpn == peer.qpn and f.opcode == ACK]
        assert got == wanted[: len(got)], f"{sender}: the first difference is answer {first_difference(got, wanted)}"
        qp = engine.counters[RECEIVER, sender, 0]
        assert len(wanted) - len(got) <= 1, f"{len(got)} answers, the model has {len(wanted)}"
        placed = (qp.placed_packets, qp.duplicate_packets, qp.refused_packets, qp.misplaced_packets)
        assert placed == (len(model.placed), model.duplicates, model.refused, 0), f"{sender}: {placed}"
        assert sorted(model.placed) == list(range(packet_ends()[-1]))


@pytest.mark.parametrize("transport", ["sr", "gbn"])
def test_the_sender_sends_what_its_model_sends_until_the_first_timeout(transport):
    sender = SENDERS[0]
    frames, engine = record(transport, sender)
    own, peer = engine.work.ends[sender, RECEIVER, 0], engine.work.ends[RECEIVER, sender, 0]
    model = Sender(packet_ends(), transport == "sr", window=64, reorder=8)
    wanted = model.on_tick()
    for answer in [f.answer() for f in frames if not f.sent and f.qpn == own.qpn and f.opcode == ACK]:
        wanted += model.on_answer(answer)
    got = [(f.psn, f.asks) for f in frames if f.sent and f.qpn == peer.qpn and f.opcode == WRITE_IMM]
    alike = first_difference(got, wanted)
    if engine.counters[sender, RECEIVER, 0].timeouts == 0:
        assert got == wanted, f"the first difference is packet {alike}"
    assert alike > 64, f"packet {alike} of {len(got)} differs: sent {got[alike:alike + 3]}, model {wanted[alike:alike + 3]}"


def first_difference(one: list, other: list) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))
