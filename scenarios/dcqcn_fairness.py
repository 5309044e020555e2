"""Do DCQCN flows share a bottleneck fairly, and does the queue stay under Kmax?

    srv1..srvN rail0 ==== leaf0 ==== rail0 srv0         every link rate_gbps; leaf0's port to srv0 is the one that queues

Closed loop: the eBPF NICs send size_bytes each, all at line rate from the same instant; CE comes back as CNPs, which cut rates.
The first quarter is the start-up, stated apart (n windows in one queue before the first CNP); shares and depth count from there
to the end of the first flow. With --out, plot.svg has queue and goodput over time.
Expect: shares within 10 % of fair, the queue under Kmax. About 40 s, lab kernel.
"""

from emu.measure.sharing import sharing
from emu.measure.transfers import run_messages
from emu.nic.work_request import Message
from emu.report.table import kilobytes
from emu.scenario import Column, Outcome, Parameter, ecn_profile, main, parameters, transport
from emu.topology.model import nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

RECEIVER = nic(0, 0)
MESSAGES_EACH = 4           # one after the other on each connection: a message has at most 4 GiB
UNFAIR = 0.10               # of the fair share
USED = 0.95                 # of the line, by payload; the rest are headers and what DCQCN leaves

PARAMETERS = parameters.select(
    "rate_gbps", "mtu", "delay_ns", "ecn_profile", "buffer_bytes", "dilation", "cc", "payload", "window_packets",
    "icrc", transport="sr", rto_us=5000,
    size_bytes=mib(2048),           # from each; marks come at random, so that short runs look unfair
    kmin_bytes=800_000, kmax_bytes=3_200_000, pmax=0.2,    # SimAI's for 400 Gb/s
    flows=Parameter(int, (1, 2, 8), "senders", minimum=1, maximum=64),
    sample_us=Parameter(int, 20, "fabric time between two samples", "us", minimum=1),
)
COLUMNS = [
    Column("flows"), Column("share_min", "least share of fair", ".3f"), Column("share_max", "largest", ".3f"),
    Column("used_share", "line used", ".1%"), Column("start_depth_bytes", "start-up depth kB", kilobytes),
    Column("depth_max_bytes", "depth max kB", kilobytes), Column("depth_mean_bytes", "mean kB", kilobytes),
    Column("ecn_marked_packets", "marked", ",d"), Column("ce_delivered_packets", "CE delivered", ",d"),
    Column("cnp_packets", "CNPs", ",d"), Column("dropped_packets", "dropped", ",d"),
    Column("retransmitted_packets", "sent again", ",d"), Column("completion_us", "completion us", ",.0f"),
]


def topology(p):
    return SpineLeaf(servers=p.flows + 1, gpus_per_server=1, wiring="rail", leaf_down=p.flows + 1, leaf_up=0,
                     rate_bps=gbps(p.rate_gbps), delay_ns=p.delay_ns, path_mtu_bytes=p.mtu,
                     queue=QueueProfile(buffer_bytes=p.buffer_bytes, ecn=ecn_profile(p))).topology()


def run(fabric, p):
    each = -(-p.size_bytes // MESSAGES_EACH)
    messages = [Message(source=nic(1 + flow, 0), target=RECEIVER, size_bytes=each)
                for _ in range(MESSAGES_EACH) for flow in range(p.flows)]
    transferred = run_messages(fabric, messages, transport(p), watch=[fabric.ports[RECEIVER].peer], every_us=p.sample_us)
    shared = sharing(transferred)
    row = {"flows": p.flows, "kmax_bytes": ecn_profile(p).kmax_bytes} | shared.row() | transferred.row()
    return Outcome(rows=[row], metrics=transferred.metrics(), checks=transferred.checks(), series=shared.series(),
                   warnings=transferred.warnings())


def expect(result):
    for row in result.rows:
        shares = f"{row['flows']} flows: shares {row['share_min']:.3f} to {row['share_max']:.3f} of fair"
        assert row["share_min"] >= 1 - UNFAIR and row["share_max"] <= 1 + UNFAIR, f"{shares}, want within {UNFAIR:.0%}"
        depth = f"{row['flows']} flows: a queue of {row['depth_max_bytes']} bytes"
        assert row["depth_max_bytes"] < row["kmax_bytes"], f"{depth}, want less than Kmax, {row['kmax_bytes']}"
        assert row["used_share"] >= USED, f"{row['flows']} flows used {row['used_share']:.1%} of the line, want {USED:.0%}"


if __name__ == "__main__":
    main(__file__)
