"""What does it save to wire NIC k of every server to leaf k (rail), rather than all NICs of a server to one leaf (single)?

    wiring=rail    srv0..N rail k ==== leaf k        wiring=single  srv0..M rail 0..7 ==== leaf m        every leaf ==== spines

Data parallelism: GPUs with the same number in all servers sum their gradients, an AllReduce of size_bytes for each number, all at
once. On rail their NICs share a leaf (up to leaf_down servers); on single they share it with NICs that they reach faster inside
the server, so that hops to other leaves' servers cross the spines, where hashing puts some on one uplink and the slowest decides.
Expect: on rail no byte leaves its leaf and 95 % of the physical busbw is reached; single stays below. About 60 s, lab kernel.
"""

from emu.measure.collective import Collective, conclusions
from emu.measure.transfers import run_messages
from emu.nic.collective import ALGORITHMS, check, data_parallel
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, spine_leaf, transport
from emu.units import mib

GOOD, LARGE_BYTES = 0.95, mib(16)       # of the physical busbw, for sizes beside which filling the ring is short

PARAMETERS = parameters.select(
    "gpus_per_server", "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "buffer_bytes", "dilation",
    "payload", "icrc", "hash_seed", "cc", "lb",
    wiring=("rail", "single"), gpus=64, leaf_down=16, leaf_up=16, size_bytes=mib(16), transport="sr", rto_us=5000,
    window_packets=1024, delay_ns=500,
    algo=Parameter(str, "ring", "collective algorithm", choices=ALGORITHMS),
)
COLUMNS = [
    Column("local_share", "stays under its leaf", ".1%"), Column("completion_us", "time us", ",.1f"),
    Column("busbw_GBps", "busbw GB/s of a NIC", ".2f"), Column("busbw_fraction", "of physical", ".1%"),
    Column("flows_per_uplink", "flows per uplink", ".3g"), Column("uplink_max_over_mean", "uplinks max/mean", ".3f"),
    Column("ecn_marked_packets", "marked", ",d"), Column("leaf_marked_packets", "marked at one leaf", ",d"),
    Column("cnp_packets", "CNPs", ",d"), Column("dropped_packets", "dropped", ",d"), Column("packet_hops", "packet-hops", ",d"),
]


def topology(p):
    check(p.algo, p.gpus // p.gpus_per_server)
    return spine_leaf(p)


def run(fabric, p):
    messages = data_parallel(fabric.plan.topology, p.algo, p.size_bytes)
    with balancing(fabric, p, messages):
        transferred = run_messages(fabric, messages, transport(p))
    measured = Collective(transferred, "all_reduce", p.gpus // p.gpus_per_server, p.size_bytes, nics=1)
    row = {"gpus": p.gpus, "algo": p.algo, "wiring": p.wiring, "size_bytes": p.size_bytes}
    row |= transferred.row() | measured.balance.row() | measured.row()
    return Outcome(rows=[row], metrics=[*transferred.metrics(), *measured.metrics()], checks=transferred.checks(),
                   warnings=transferred.warnings())


def conclude(result):
    return conclusions(result.rows)


def expect(result):
    rows = {row["wiring"]: row for row in result.rows if row["algo"] == "ring"}
    for row in result.rows:
        if row["local_share"] == 1 and row["algo"] == "ring" and row["size_bytes"] >= LARGE_BYTES:
            reached = row["busbw_fraction"]
            assert reached >= GOOD, f"{row['wiring']}: {reached:.1%} of the physical busbw, want {GOOD:.0%}"
    if {"rail", "single"} <= rows.keys():
        rail, single = (rows[wiring]["local_share"] for wiring in ("rail", "single"))
        assert single < rail, f"{single:.1%} of the bytes stay under their leaf with single wiring, {rail:.1%} with rail"


if __name__ == "__main__":
    main(__file__)
