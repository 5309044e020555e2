"""From which size on is a ring faster than a tree, and which of them marks packets?

    srv0..srvN rail k ==== leaf k of the group ==== spine0..leaf_up-1 ==== leaf k of the next group      leaf_down servers a group

AllReduce of begin_bytes to end_bytes, each factor times the one before, as nccl-tests' -b -e -f; protocol Simple, see
emu/nic/collective.py. algo=ring: a channel for each rail. tree: the reference article's single binary tree over all GPUs.
double_tree: NCCL's, over servers. The scale-up domain takes no time, so that what is compared is the network's share.
DCQCN, and a window as large as NCCL's buffer (4 MiB), as NICs have none of their own: an incast fills queues and is answered.
Expect: the trees win small sizes, the ring large ones, at 95 % of the physical busbw and next to no mark. About 60 s, lab kernel.
At real size: --set gpus=480,640 --set leaf_down=64 --set leaf_up=64 (60 servers are under one set of leaves, 80 are not).
"""

from emu.measure import collective
from emu.measure.collective import Collective
from emu.measure.transfers import run_messages
from emu.nic.collective import ALGORITHMS, all_reduce, check
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, spine_leaf, transport
from emu.scenario.sizes import as_text
from emu.units import mib

GOOD, FEW_MARKS = 0.95, 0.001       # of the physical busbw; of the packets
LARGE_BYTES = mib(64)

PARAMETERS = parameters.select(
    "gpus_per_server", "wiring", "leaf_down", "leaf_up", "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile",
    "buffer_bytes", "dilation", "payload", "icrc", "hash_seed", "cc", "lb",
    gpus=64, transport="sr", rto_us=5000, window_packets=1024,
    delay_ns=500,           # of a link, with what a switch adds: a few hundred ns each
    algo=Parameter(str, ("ring", "tree", "double_tree"), "collective algorithm", choices=ALGORITHMS),
    begin_bytes=Parameter(int, 1024, "smallest size", "bytes", minimum=1),
    end_bytes=Parameter(int, mib(64), "sizes up to this one", "bytes", minimum=1),
    factor=Parameter(int, 4, "each size over the one before", minimum=2),
)
COLUMNS = [
    Column("size_bytes", "size", as_text), Column("completion_us", "time us", ",.1f"), Column("algbw_GBps", "algbw GB/s", ".3f"),
    Column("busbw_GBps", "busbw GB/s", ".3f"), Column("busbw_fraction", "of physical", ".1%"),
    Column("ecn_marked_packets", "marked", ",d"), Column("leaf_marked_packets", "marked at one leaf", ",d"),
    Column("cnp_packets", "CNPs", ",d"), Column("messages", "messages", ",d"), Column("delivered_packets", "packets", ",d"),
    Column("dropped_packets", "dropped", ",d"), Column("retransmitted_packets", "sent again", ",d"),
]


def topology(p):
    check(p.algo, p.gpus // p.gpus_per_server)
    return spine_leaf(p)


def run(fabric, p):
    rows, checks, warnings, metrics = [], [], [], []
    for size_bytes in sizes(p):
        messages = all_reduce(fabric.plan.topology, p.algo, size_bytes)
        with balancing(fabric, p, messages):
            transferred = run_messages(fabric, messages, transport(p))
        measured = Collective(transferred, "all_reduce", p.gpus, size_bytes, p.gpus_per_server)
        rows.append({"algo": p.algo, "gpus": p.gpus, "size_bytes": size_bytes} | transferred.row() | measured.row())
        checks += transferred.checks()
        warnings = transferred.warnings()
        metrics = [*transferred.metrics(), *measured.metrics()]     # of the largest size
    return Outcome(rows=rows, checks=checks, warnings=warnings, metrics=metrics, series=collective.curves(rows, "AllReduce"))


def sizes(p):
    size_bytes = p.begin_bytes
    while size_bytes <= p.end_bytes:
        yield size_bytes
        size_bytes *= p.factor


def conclude(result):
    return collective.conclusions(result.rows)


def expect(result):
    for row in result.rows:
        if row["algo"] == "ring" and row["size_bytes"] >= LARGE_BYTES and row["gpus"] <= 64:
            marks, reached = row["ecn_marked_packets"] / row["delivered_packets"], row["busbw_fraction"]
            assert reached >= GOOD, f"ring of {row['gpus']} GPUs: {reached:.1%} of the physical busbw, want {GOOD:.0%}"
            assert marks <= FEW_MARKS, f"ring of {row['gpus']} GPUs: {marks:.2%} of the packets marked"


if __name__ == "__main__":
    main(__file__)
