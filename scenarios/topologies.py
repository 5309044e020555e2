"""What do fat tree, torus, dragonfly and dragonfly+ save or cost against Spine-Leaf, with the same GPUs and traffic?

    spine_leaf   leaf - spine - leaf                   torus            node - node, rings in each dimension
    fat_tree     edge - agg - core - agg - edge        dragonfly        router - router = router - router   (=: to another group)
                                                       dragonfly_plus   leaf - spine = spine - leaf

traffic=all_to_all   every NIC to every other, size_bytes from each in all
traffic=permutation  every NIC to one at random under another switch
traffic=allreduce    ring AllReduce of size_bytes, server to next server; scale-up hops take no time
traffic=shift        every NIC to the one `shift` further, so a whole group of a dragonfly to the next
Hops are cables between switches. "bisection": of what half the NICs send, how much the middle carries. "load": what the busiest
cable carries for each byte of the busiest NIC, if equal-cost ways are used alike. "of line rate": of the busiest NIC's.
No deadlock: queues drop; PFC and virtual channels are not modelled. Routing is minimal and hashed, without detours.
Expect: hops as the closed forms say; nothing faster than its busiest cable; a Clos takes any pattern, a dragonfly not a shift.
About 90 s, lab kernel.
"""

from random import Random

from emu.measure.hops import Hops
from emu.measure.transfers import run_messages
from emu.nic import traffic
from emu.nic.messages import from_pairs
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, scale_out, transport
from emu.units import mib
from emu.workload.patterns import shift

CLOS = ("spine_leaf", "fat_tree")
HOPS_OFF, RATE_OFF = 0.005, 0.005   # relative: ACKs that lost packets cost; what a shaper's burst is ahead of its rate
STARVED, FULL = 4, 0.95             # load at which many flows wait for one cable, and what they fill of it
HASHED = 0.25                       # of line rate: a non-blocking fabric reaches it even with flows that are hashed badly

PARAMETERS = parameters.select(
    "leaf_down", "leaf_up", "radix", "edge_up", "dims", "group_switches", "switch_gpus", "global_ports",
    "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "buffer_bytes", "dilation", "payload",
    "icrc", "lb", "hash_seed",
    topology=("spine_leaf", "fat_tree", "torus", "dragonfly", "dragonfly_plus"),
    gpus=64, gpus_per_server=2, qps=4, size_bytes=mib(2), transport="sr", cc="none", window_packets=16, rto_us=1000,
    traffic=Parameter(str, ("all_to_all", "permutation", "allreduce", "shift"), "who sends to whom",
                      choices=(*traffic.PATTERNS, "shift")),
    shift=Parameter(int, 8, "how many NICs further; 8 are a group here", minimum=1),
)
COLUMNS = [
    Column("switches"), Column("cables"), Column("diameter"),
    Column("bisection_share", "bisection", ".1%"),
    Column("mean_hops", "hops", ".3f"), Column("closed_hops", "closed form", ".3f"),
    Column("planned_load", "load", ".2f"), Column("completion_us", "completion us", ",.1f"),
    Column("busbw_fraction", "of line rate", ".1%"), Column("ecn_marked_packets", "marked", ",d"),
    Column("dropped_packets", "dropped", ",d"),
]


def topology(p):
    return scale_out(p).topology()


def messages(built, p):
    if p.traffic == "shift":
        return from_pairs(shift(built, p.shift), p.size_bytes, p.qps)
    return traffic.PATTERNS[p.traffic](built, traffic.Size(p.size_bytes, p.qps, built.gpus), Random(p.seed))


def run(fabric, p):
    figures, sent = scale_out(p).figures, messages(fabric.plan.topology, p)
    with balancing(fabric, p, sent):
        transferred = run_messages(fabric, sent, transport(p))
    row = {
        "topology": p.topology, "traffic": p.traffic, "switches": figures.switches, "cables": figures.cables,
        "diameter": figures.diameter, "bisection_share": float(figures.bisection_share),
    } | transferred.row() | Hops(transferred).row()
    if p.traffic == "all_to_all":
        row["closed_hops"] = float(figures.mean_hops)
    return Outcome(rows=[row], metrics=transferred.metrics(), checks=transferred.checks(), warnings=transferred.warnings())


def expect(result):
    for row in result.rows:
        where, reached, load = f"{row['topology']}, {row['traffic']}", row["busbw_fraction"], row["planned_load"]
        hops, planned = row["mean_hops"], row.get("closed_hops", row["planned_hops"])
        assert row["dropped_packets"] or abs(hops - planned) <= HOPS_OFF * planned, f"{where}: {hops} hops, want {planned}"
        if not row["hashed_ratio"]:
            most = min(1, 1 / load) if load else 1
            assert reached <= (1 + RATE_OFF) * most, f"{where}: {reached:.1%} of line rate, the busiest cable allows {most:.1%}"
            assert load < STARVED or reached >= FULL * most, f"{where}: {reached:.1%} of line rate, the cable allows {most:.1%}"
        if row["topology"] in CLOS and row["bisection_share"] == 1:
            assert load <= 1.001, f"{where}: the busiest cable has {load} times a NIC's load in a non-blocking fabric"
            assert reached > HASHED, f"{where}: {reached:.1%} of line rate in a non-blocking fabric"


if __name__ == "__main__":
    main(__file__)
