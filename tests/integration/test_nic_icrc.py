"""Promises of the eBPF NIC's iCRC: right on every frame by an independent CRC, unharmed by switches, checked on arrival."""

from __future__ import annotations

import collections
import subprocess
import zlib
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from emu.fabric.fabric import Fabric
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message, with_credit
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, ms
from tests.integration.nic_wire import ACK, AETH, CNP, HEADERS_BYTES, NAK, WRITE_IMM, Frame, Recorder, whole

MTU_BYTES, CE, LIMIT_S = 4096, 3, 60
SIZES = (700_001, 3, 4096, 6_021)  # pads of 3, 1, 0 and 3 bytes; last packets of many lengths
RECEIVER, SENDERS = nic(0, 0), (nic(1, 0), nic(2, 0), nic(3, 0))
SHALLOW = QueueProfile(buffer_bytes=60_000, ecn=EcnProfile(kmin_bytes=8_000, kmax_bytes=16_000, pmax=0.2))
DEEP = QueueProfile(buffer_bytes=1 << 24)


def run(transport: Transport, elided: bool, queue: QueueProfile, corrupt: str = "") -> tuple[list[Frame], Sequence, int]:
    """Three NICs to one: (frames at the receiver and at one sender, both ways; every QP's counters; packets for no QP)."""
    shape = SpineLeaf(servers=4, gpus_per_server=1, wiring="rail", leaf_down=4, leaf_up=0, rate_bps=gbps(400), queue=queue)
    messages = with_credit(Message(source=source, target=RECEIVER, size_bytes=size) for size in SIZES for source in SENDERS)
    scale = Scale(dilation=1000, catch_up_ns=500_000)
    with ExitStack() as closing:
        fabric = closing.enter_context(Fabric(make_plan(shape.topology(), seed=1), scale, elided=elided))
        recorders = [closing.enter_context(Recorder(fabric, at)) for at in (RECEIVER, SENDERS[0])]
        if corrupt:
            impair(fabric, corrupt)
        engine = closing.enter_context(Engine(fabric, messages, transport))
        outcome = engine.run(LIMIT_S)
        assert outcome.left == 0, f"{outcome.left} of {len(messages)} messages are not complete after {LIMIT_S} s"
        frames = [frame for recorder in recorders for frame in recorder.frames()]
        return frames, list(engine.ends().values()), engine.progress().strangers


def impair(fabric: Fabric, corrupt: str) -> None:
    port = fabric.ports[RECEIVER].peer
    command = ["tc", "-n", fabric.netlink(port.node).netns, "qdisc", "add", "dev", port.ifname, "parent", "1:1", "netem"]
    done = subprocess.run([*command, "corrupt", corrupt], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def setting(transport: str, cc: str, icrc: bool) -> Transport:
    return Transport(transport=transport, cc=cc, icrc=icrc, window_packets=128, reorder_packets=8, rto_ns=ms(0.2))


def reference_icrc(frame: bytes) -> bytes:
    """Shares nothing with emu.roce.icrc: Ethernet II, IPv4 without options, UDP, BTH at fixed places."""
    covered = bytearray(b"\xff" * 8 + frame[14:-4])
    for at in (9, 16, 18, 19, 34, 35, 40):  # ToS, TTL, two checksums, BTH's FECN and BECN
        covered[at] = 0xFF
    return zlib.crc32(covered).to_bytes(4, "little")


def kind(frame: Frame) -> str:
    if frame.opcode == ACK:
        return "NAK" if frame.raw[AETH] == NAK else "SACK" if len(frame.raw) == 82 else "ACK"
    return {WRITE_IMM: "data", CNP: "CNP"}[frame.opcode]


def is_right(frame: Frame, elided: bool) -> bool:
    return frame.raw[-4:] == reference_icrc(whole(frame.raw, MTU_BYTES if elided else 0))


@pytest.mark.needs_marker
@pytest.mark.parametrize("elided", [False, True], ids=["full", "elided"])
@pytest.mark.parametrize(("transport", "cc", "kinds"), [
    ("gbn", "none", {"data", "ACK", "NAK"}), ("sr", "none", {"data", "ACK", "SACK"}), ("sr", "dcqcn", {"data", "ACK", "CNP"}),
])
def test_every_frame_carries_the_icrc_that_an_independent_crc_says(transport, cc, kinds, elided):
    frames, ends, _ = run(setting(transport, cc, icrc=True), elided, SHALLOW)
    found = collections.Counter(map(kind, frames))
    assert kinds <= set(found), f"only {found}: no test"
    marked = sum(frame.raw[15] & 3 == CE for frame in frames)
    assert marked and any(frame.raw[22] == 63 for frame in frames), "no switch changed a frame: no test"
    wrong = [frame for frame in frames if not is_right(frame, elided)]
    assert not wrong, f"{len(wrong)} of {len(frames)} iCRCs are wrong, the first: {kind(wrong[0])} {wrong[0].raw[:90].hex()}"
    assert sum(qp.icrc_errors for qp in ends) == 0
    lengths = {len(frame.raw) for frame in frames if frame.opcode == WRITE_IMM}
    assert len(lengths) >= 4, f"data of lengths {lengths}: no test"
    print(f"{dict(found)}, {marked} with CE, data of {sorted(lengths)} bytes: all {len(frames)} right")


@pytest.mark.needs_marker
@pytest.mark.parametrize("elided", [False, True], ids=["full", "elided"])
def test_without_icrc_every_frame_carries_0(elided):
    frames, ends, _ = run(setting("sr", "dcqcn", icrc=False), elided, SHALLOW)
    assert {"data", "ACK", "SACK", "CNP"} <= set(map(kind, frames))
    carrying = [frame for frame in frames if frame.raw[-4:] != bytes(4)]
    assert not carrying, f"{len(carrying)} of {len(frames)} frames carry something"
    assert sum(qp.icrc_errors for qp in ends) == 0


@pytest.mark.needs_netem
@pytest.mark.parametrize("elided", [False, True], ids=["full", "elided"])
def test_a_receiver_drops_exactly_the_frames_whose_icrc_is_wrong_and_the_messages_complete(elided):
    frames, ends, strangers = run(setting("sr", "none", icrc=True), elided, DEEP, corrupt="5%")
    known = [frame for frame in frames if frame.opcode in (WRITE_IMM, ACK, CNP)]
    wrong = [frame for frame in known if not is_right(frame, elided)]
    dropped, placed_wrongly = sum(qp.icrc_errors for qp in ends), sum(qp.misplaced_packets for qp in ends)
    seen = f"{len(wrong)} of {len(frames)} frames arrived with a wrong iCRC: {dropped} dropped for it, {strangers} for no QP"
    print(seen)
    assert len(wrong) > 5, f"{len(wrong)} frames were corrupted: no test"
    assert len(wrong) == dropped + strangers, seen
    assert placed_wrongly == 0, f"{placed_wrongly} packets passed with a wrong place"


@pytest.mark.needs_netem
def test_without_icrc_corrupted_payload_is_placed():
    frames, ends, _ = run(setting("sr", "none", icrc=False), False, DEEP, corrupt="5%")
    spoilt = [frame for frame in frames if frame.opcode == WRITE_IMM and any(frame.raw[HEADERS_BYTES - 4 :])]
    dropped = sum(qp.icrc_errors for qp in ends)
    assert len(spoilt) > 5 and dropped == 0, f"{len(spoilt)} payloads were not zeros, {dropped} frames dropped for it"
