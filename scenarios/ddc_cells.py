"""What does a cell fabric do to a permutation and to an incast, and what does it cost, against ECMP and packet spraying?

    srv0..7 ==== leaf0 ==== spine0..leaf_up-1 ==== leaf1 ==== srv8..15      non-blocking: leaf_up = leaf_down

lb=ddc: a packet waits in a virtual output queue (VOQ) of its ingress leaf until its egress port gives it a credit, then crosses
as equal cells over all uplinks in turn and is put together at the egress leaf. "cell tax" is what the uplinks' queues sent over
what NICs' sent, less 1, acknowledgements included, each of which fills a cell.
traffic=permutation  every NIC sends size_bytes to one NIC under another leaf and receives from one
traffic=incast       `senders` NICs of other leaves send size_bytes each to one NIC of leaf0; a bystander sends as much to the NIC
                     beside it, and "slowed" is its time over that alone on the fabric (no PFC here, which would spread the jam)
"in VOQs", "uplinks", "spines", "egress": the most that waited in all queues of that stage together, every sample_us.
Expect: with ddc nothing is reordered, marked or dropped, the tax is the closed form's, an incast waits in VOQs and a bystander
notices nothing; with the others it waits at the egress port, and is marked there. About 60 s, lab kernel.
"""

from random import Random

from emu.measure.balance import Balance
from emu.measure.cells import tax_row, times_over_ddc
from emu.measure.transfers import run_messages
from emu.measure.waiting import Waiting
from emu.nic.messages import from_pairs
from emu.report.table import kilobytes
from emu.scenario import Column, Outcome, Parameter, balancing, ecn_profile, main, parameters, spine_leaf, transport
from emu.units import mib
from emu.workload import patterns

GOOD = 0.9                  # of what the fabric carries
EXACT, NOTICED = 1e-4, 1.01     # of the tax; of a bystander's time
SHALLOW = 10                # times more waits at the ingress than at the egress

PARAMETERS = parameters.select(
    "gpus", "leaf_down", "leaf_up", "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "dilation",
    "payload", "icrc", "hash_seed",
    traffic=Parameter(str, ("permutation", "incast"), "who sends to whom", choices=("permutation", "incast")),
    lb=("ecmp", "spray", "ddc"), wiring="single", transport="sr", cc="none", rto_us=500, size_bytes=mib(4),
    gpus_per_server=1,      # NICs of one server begin in turns, which would be the bystander's loss
    qps=4, window_packets=32,       # together the windows of an incast are twice the buffer
    buffer_bytes=mib(4),
    senders=Parameter(int, 16, "NICs that send to one in an incast", minimum=1),
    cell_bytes=Parameter(int, 256, "of packet in a cell, besides its header of 14", "bytes", minimum=128, maximum=2112),
    credit_rtt_ns=Parameter(int, 1000, "what a packet waits for its credit on an idle fabric", "ns", minimum=0),
    fabric_speedup=Parameter(float, 20 / 18, "of links between switches, with ddc", minimum=1, maximum=4),
    sample_us=Parameter(int, 2, "fabric time between two samples", "us", minimum=1),
)
COLUMNS = [
    Column("traffic"), Column("lb"), Column("busbw_fraction", "of ideal", ".1%"),
    Column("completion_us", "completion us", ",.1f"), Column("uplink_max_over_mean", "uplinks max/mean", ".3f"),
    Column("reordered_ratio", "reordered", ".1%"), Column("uplink_tax", "cell tax", ".2%"),
    Column("formula_tax", "by formula", ".2%"), Column("credit_wait_mean_us", "credit wait mean us", ",.1f"),
    Column("credit_wait_max_us", "max us", ",.1f"), Column("voqs_max_bytes", "in VOQs kB", kilobytes),
    Column("uplinks_max_bytes", "uplinks kB", kilobytes), Column("spines_max_bytes", "spines kB", kilobytes),
    Column("egress_max_bytes", "egress kB", kilobytes), Column("ecn_marked_packets", "marked", ",d"),
    Column("egress_marked_packets", "at egress", ",d"), Column("dropped_packets", "dropped", ",d"),
    Column("egress_dropped_packets", "at egress", ",d"), Column("bystander_slowed", "bystander slowed", ".3f"),
]


def topology(p):
    return spine_leaf(p)


def run(fabric, p):
    own = {name: getattr(p, name) for name in ("cell_bytes", "credit_rtt_ns", "fabric_speedup")} if p.lb == "ddc" else {}
    row, where = {"traffic": p.traffic, "lb": p.lb} | own, fabric.plan.topology
    incast = p.traffic == "incast"
    pairs = patterns.incast(where, p.senders) if incast else patterns.permutation(where, Random(p.seed))
    alone = completed(fabric, p, own, from_pairs(pairs[:1], p.size_bytes, p.qps)) if incast else None
    messages = from_pairs(pairs, p.size_bytes, p.qps)
    with balancing(fabric, p, messages, **own) as lb, Waiting(fabric, lb.installed.voqs) as waiting:
        transferred = run_messages(fabric, messages, transport(p), every_us=p.sample_us, also=waiting.sample)
        row |= transferred.row() | Balance(transferred).row() | lb.row()
    row |= waiting.row(transferred) | tax_row(transferred, own.get("cell_bytes", 0))
    if incast:
        row |= {"bystander_slowed": transferred.done_us(range(len(alone.messages))) / alone.completion_us,
                "windows_bytes": p.senders * p.qps * p.window_packets * fabric.plan.frame_bytes,
                "kmax_bytes": ecn_profile(p).kmax_bytes}
    return Outcome(rows=[row], metrics=transferred.metrics(), checks=transferred.checks(), warnings=transferred.warnings())


def completed(fabric, p, own, messages):
    with balancing(fabric, p, messages, **own):
        return run_messages(fabric, messages, transport(p))


def conclude(result):
    varied = [name for name, value in result.parameters.items() if isinstance(value, list) and name != "lb"]
    return times_over_ddc(result.rows, varied)


def expect(result):
    for row in result.rows:
        where, egress = f"{row['traffic']}, lb={row['lb']}", row["egress_max_bytes"]
        if row["lb"] == "ddc":
            bad = {name: row[name] for name in ("reordered_ratio", "ecn_marked_packets", "dropped_packets") if row[name]}
            assert not bad, f"{where}: {bad}, want none"
            taxes = f"a cell tax of {row['uplink_tax']:.4%}, by the formula {row['formula_tax']:.4%}"
            assert abs(row["uplink_tax"] - row["formula_tax"]) <= EXACT, f"{where}: {taxes}"
            want = GOOD * min(1, row["fabric_speedup"] / (1 + row["formula_tax"]))
            assert row["busbw_fraction"] >= want, f"{where}: {row['busbw_fraction']:.1%} of ideal, want {want:.1%}"
        if row["traffic"] != "incast" or row["windows_bytes"] <= row["kmax_bytes"]:
            continue
        waited = f"{where}: at most {row['voqs_max_bytes']} bytes in VOQs, {egress} at the egress"
        if row["lb"] == "ddc":
            assert row["voqs_max_bytes"] > SHALLOW * egress, waited
            assert row["bystander_slowed"] <= NOTICED, f"{where}: the bystander took {row['bystander_slowed']:.3f} times as long"
        else:
            assert row["egress_marked_packets"] > 0, f"{waited}, nothing marked there"


if __name__ == "__main__":
    main(__file__)
