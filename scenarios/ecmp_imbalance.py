"""How much of a fabric is lost to hashing, and what do path navigation, spraying or a cell fabric give back?

    srv0 rail0..7 ==== leaf0 ==== spine0..leaf_up-1 ==== leaf1 ==== srv1 rail0..7      non-blocking: leaf_up = leaf_down

traffic=permutation  every NIC sends size_bytes to one NIC under another leaf and receives from one: every uplink is needed
traffic=all_to_all   groups of group_gpus NICs, strided over the leaves as experts are, size_bytes from each NIC in all
traffic=allreduce    ring AllReduce of size_bytes over all GPUs, a channel for each rail (scale-up hops take no time)
"of ideal" is the time at line rate over the time taken, "efficiency" mean / max of a leaf's uplinks, "by hashing" its exact
expectation for as many equal flows. fail=leaf0:up0: that cable dies at fail_us, is back at repair_us.
Expect: hashing as its closed form says; path, spray and ddc at 95 % of ideal. About 60 s, lab kernel.
"""

from random import Random

from emu.measure import links
from emu.measure.balance import Balance
from emu.measure.transfers import run_messages
from emu.nic import traffic
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, spine_leaf, transport
from emu.units import mib

GOOD, HASHED = 0.95, ("ecmp", "eecmp")
BALANCED = ("path", "spray", "ddc")

PARAMETERS = parameters.select(
    "gpus_per_server", "leaf_down", "leaf_up", "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile",
    "buffer_bytes", "dilation", "payload", "icrc", "hash_seed",
    gpus=64, wiring="single", lb=("ecmp", "path", "spray", "ddc"), qps=4, size_bytes=mib(16), transport="sr", cc="none",
    rto_us=100,             # many times what a packet can wait here
    window_packets=8,       # four queue pairs fill the path; with much more, queues stand and senders unsettle each other
    traffic=Parameter(str, ("permutation", "all_to_all"), "who sends to whom", choices=tuple(traffic.PATTERNS)),
    group_gpus=Parameter(int, 16, "NICs that exchange all to all", minimum=2),
    fail=Parameter(str, "", "uplink whose cable dies, as leaf0:up0"),
    fail_us=Parameter(int, 20, "when it dies", "us", minimum=0),
    repair_us=Parameter(int, 0, "when it is back; 0: never", "us", minimum=0),
)
COLUMNS = [
    Column("traffic"), Column("busbw_fraction", "of ideal", ".1%"), Column("completion_us", "completion us", ",.1f"),
    Column("flows_per_uplink", "flows per uplink", ".3g"), Column("uplink_max_over_mean", "uplinks max/mean", ".3f"),
    Column("uplink_efficiency", "efficiency", ".3f"), Column("hash_efficiency", "by hashing", ".3f"),
    Column("uplink_idle_share", "idle", ".1%"), Column("ecn_marked_packets", "marked", ",d"),
    Column("reordered_ratio", "reordered", ".1%"), Column("dropped_packets", "dropped", ",d"),
    Column("retransmitted_packets", "sent again", ",d"), Column("lost_packets", "lost at dead link", ",d"),
    Column("moves_again_us", "all move again us", ",.1f"), Column("cell_tax", "cell tax", ".1%"),
    Column("credit_wait_mean_us", "credit wait mean us", ".2f"), Column("credit_wait_max_us", "max us", ",.1f"),
]


def topology(p):
    return spine_leaf(p)


def run(fabric, p):
    size = traffic.Size(p.size_bytes, p.qps, p.group_gpus)
    messages = traffic.PATTERNS[p.traffic](fabric.plan.topology, size, Random(p.seed))
    cable = links.Cable(p.fail, p.fail_us, p.repair_us)
    with balancing(fabric, p, messages) as lb, links.failing(fabric, cable, lb.followers) as events:
        transferred = run_messages(fabric, messages, transport(p), every_us=events.every_us, also=events.tick)
    balance = Balance(transferred)
    row = {"lb": p.lb, "traffic": p.traffic} | transferred.row() | balance.row() | lb.row() | events.row(transferred)
    return Outcome(rows=[row], metrics=[*transferred.metrics(), *balance.metrics()], checks=transferred.checks(events.dead),
                   series=balance.series(p.lb), warnings=transferred.warnings())


def expect(result):
    if result.parameters["fail"]:
        return
    for row in result.rows:
        reached, where = row["busbw_fraction"], f"lb={row['lb']}, {row['traffic']}"
        if row["lb"] in BALANCED and row["traffic"] != "allreduce":
            assert reached >= GOOD, f"{where}: {reached:.1%} of ideal, want {GOOD:.0%}"
        if row["lb"] in HASHED and row["flows_per_uplink"] <= 4:
            assert reached < GOOD, f"{where}: {reached:.1%} of ideal with {row['flows_per_uplink']:.3g} flows an uplink"


if __name__ == "__main__":
    main(__file__)
