"""Promises of what the eBPF NIC puts on the wire: tshark dissects all of it, and the capture tells fabric time and iCRC."""

from __future__ import annotations

import collections
import subprocess
from pathlib import Path

import pytest

from emu.fabric.fabric import Fabric
from emu.nic.engine import Engine
from emu.nic.transport import Transport
from emu.nic.work_request import Message, with_credit
from emu.report.capture import Capture
from emu.scale import Scale
from emu.topology.model import nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, ms
from tests.integration.nic_wire import whole

pytestmark = [pytest.mark.needs_marker, pytest.mark.needs_tshark]

DILATION, LIMIT_S = 1000, 60
SIZES = (700_001, 3, 4096)
FIELDS = ("frame.time_epoch", "frame.len", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.reth.va",
          "infiniband.aeth.syndrome", "infiniband.invariant.crc", "_ws.malformed", "ip.checksum.status")


def capture(path: Path, elided: bool, icrc: bool) -> int:
    """Three NICs to one through a shallow queue that marks: data, repairs, ACK, SACK and CNP; as the receiver's NIC sees it."""
    shape = SpineLeaf(servers=4, gpus_per_server=1, wiring="rail", leaf_down=4, leaf_up=0, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=60_000, ecn=EcnProfile(kmin_bytes=8_000, kmax_bytes=16_000, pmax=0.2)))
    messages = with_credit(
        Message(source=nic(1 + k, 0), target=nic(0, 0), size_bytes=size) for size in SIZES for k in range(3)
    )
    setting = Transport(cc="dcqcn", icrc=icrc, window_packets=128, reorder_packets=8, rto_ns=ms(0.2))
    scale = Scale(dilation=DILATION, catch_up_ns=500_000)
    with Fabric(make_plan(shape.topology(), seed=1), scale, elided=elided) as fabric:
        with Capture(fabric, nic(0, 0)) as recorded, Engine(fabric, messages, setting) as engine:
            assert engine.run(LIMIT_S).left == 0
            count = recorded.write(path)
            assert recorded.lost == 0
    return count


def dissect(path: Path) -> list[dict[str, str]]:
    words = ["tshark", "-r", str(path), "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=|"]
    done = subprocess.run([*words, *(word for field in FIELDS for word in ("-e", field))], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    return [dict(zip(FIELDS, line.split("|"), strict=True)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("icrc", [False, True], ids=["without", "icrc"])
@pytest.mark.parametrize("elided", [False, True], ids=["full", "elided"])
def test_tshark_dissects_every_packet_without_a_malformed_one(tmp_path, elided, icrc):
    from emu.roce.icrc import verify
    from scapy.utils import RawPcapNgReader

    path = tmp_path / "nic.pcapng"
    written = capture(path, elided, icrc)
    rows = [row for row in dissect(path) if row["infiniband.bth.opcode"]]
    kinds = collections.Counter(int(row["infiniband.bth.opcode"]) for row in rows)
    assert len(rows) <= written and min(kinds[0x0B], kinds[0x11]) > 100 and kinds[0x81] > 0, f"{kinds} of {written}"
    bad = [row for row in rows if row["_ws.malformed"]]
    assert not bad, f"{len(bad)} malformed, the first: {bad[0]}"
    wrong = [row for row in rows if row["ip.checksum.status"] != "1"]
    assert not wrong, f"{len(wrong)} wrong IP checksums, the first: {wrong[0]}"
    assert max(int(row["frame.len"]) for row in rows) == 4174
    times = [float(row["frame.time_epoch"]) for row in rows]
    assert times == sorted(times) and times[-1] < 10.0 / DILATION * 60
    frames = [whole(frame, 4096 * elided) for frame, *_ in RawPcapNgReader(str(path)) if frame[12:14] == b"\x08\0"]
    odd = [frame for frame in frames if frame[14] != 0x45]
    assert not odd, f"{len(odd)} of {len(frames)} captured frames are no IPv4, the first: {odd[0].hex()}"
    wrong = [frame for frame in frames if not (verify(frame) if icrc else frame.endswith(bytes(4)))]
    assert not wrong, f"{len(wrong)} of {len(frames)} iCRCs are wrong, the first: {wrong[0].hex()}"
