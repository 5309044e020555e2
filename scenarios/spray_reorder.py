"""Does a buffer survive spraying over paths of unequal length, and what would it cost to put the packets in order?

    srv0 rail0 ==== leaf0 ==== spine0..leaf_up-1 ==== leaf1 ==== rail0 srv1      cables of spine k: delay_ns + k delay_step_ns

A real buffer of random bytes goes out at line rate as RDMA WRITE packets, made with Scapy, each with its own address. They are
captured at the receiving NIC, placed by that address in whatever order they come, and compared byte for byte. "reordered" and
extent are RFC 4737's; "buffer" is the most that a NIC which delivers in order would have held (RFC 5236); it is at most what
the link carries in the time by which the paths differ ("line x skew").
Expect: intact whatever the mode; sprayed packets overtake each other, over uplinks that carry alike; on one path none does.
About 20 s, lab kernel (link delays need netem).
"""

from dataclasses import replace
from random import Random

from emu.measure.placed import Placed, send_buffer
from emu.report.capture import Capture
from emu.report.table import kilobytes
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters
from emu.topology.model import nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

SENDER, RECEIVER = nic(0, 0), nic(1, 0)
SPRAYED, EVEN, ONE_PATH = ("spray", "spray_rr", "spray_random"), ("spray", "spray_rr"), ("ecmp", "eecmp", "flowlet")
EVEN_MAX = 1.02             # max over mean; a random choice of 2,048 packets gives about 1.06

PARAMETERS = parameters.select(
    "rate_gbps", "mtu", "dilation", "buffer_bytes", leaf_up=4, delay_ns=500,
    size_bytes=Parameter(int, mib(8), "the buffer", "bytes", minimum=1, maximum=mib(64)),
    delay_step_ns=Parameter(int, 250, "what each spine's cables are longer than those before; 5 ns are 1 m", "ns", minimum=0),
    lb=Parameter(str, (*SPRAYED, "ecmp"), "how a leaf chooses the uplink", choices=(*SPRAYED, *ONE_PATH)),
)
COLUMNS = [
    Column("lb"), Column("delivered_packets", "packets", ",d"), Column("completion_us", "completion us", ",.1f"),
    Column("data_intact", "data intact"), Column("reordered_ratio", "reordered", ".1%"),
    Column("reorder_extent_max", "extent max", ",d"), Column("reassembly_buffer_bytes", "buffer kB", kilobytes),
    Column("skew_bytes", "line x skew kB", kilobytes), Column("uplink_max_over_mean", "uplinks max/mean", ".3f"),
    Column("dropped_packets", "dropped", ",d"),
]


def topology(p):
    even = SpineLeaf(servers=2, gpus_per_server=1, wiring="single", leaf_down=1, leaf_up=p.leaf_up, rate_bps=gbps(p.rate_gbps),
                     delay_ns=p.delay_ns, path_mtu_bytes=p.mtu, queue=QueueProfile(buffer_bytes=p.buffer_bytes)).topology()
    step = {spine.name: number * p.delay_step_ns for number, spine in enumerate(even.switches_of("spine"))}
    return replace(even, links=tuple(replace(link, delay_ns=link.delay_ns + step.get(link.b.node, 0)) for link in even.links))


def run(fabric, p):
    data = Random(p.seed).randbytes(p.size_bytes)
    with balancing(fabric, p, ()), Capture(fabric, RECEIVER) as capture:
        sent = send_buffer(fabric, SENDER, RECEIVER, data)
        placed = Placed(sent, [packet.raw for packet in capture.packets() if not packet.sent])
    return Outcome(rows=[{"lb": p.lb} | placed.row()], metrics=placed.metrics(), checks=placed.checks())


def expect(result):
    for row in result.rows:
        lb, reordered, held = row["lb"], row["reordered_ratio"], row["reassembly_buffer_bytes"]
        assert row["data_intact"], f"lb={lb}: the buffer that arrived is not the one sent"
        assert held <= row["skew_bytes"], f"lb={lb}: {held} bytes held, but paths differ by {row['skew_bytes']} at line rate"
        if lb in ONE_PATH:
            assert reordered == 0, f"lb={lb}: {reordered:.1%} reordered on one path"
        elif row["skew_packets"] and row["delivered_packets"] > len(row["uplink_bytes"]):
            assert reordered > 0, f"lb={lb}: nothing reordered over paths that differ by {row['skew_ns']} ns"
        if lb in EVEN:
            assert row["uplink_max_over_mean"] <= EVEN_MAX, f"lb={lb}: uplinks at {row['uplink_max_over_mean']:.3f} of the mean"


if __name__ == "__main__":
    main(__file__)
