"""What does an ECN profile do to an incast of N senders on one rail?

    srv1..srvN rail0 ==== leaf0 ==== rail0 srv0         every link rate_gbps; leaf0's port to srv0 is the one that queues
                            |
                        spine0..                        there, and idle: same-rail traffic stays under its leaf

Open loop: the senders offer load x the link rate whatever the marks say, so the table shows the profile, not a transport.
Expect: at load <= 0.9 not one mark; above 1, once the queue has passed Kmax, every packet. About 20 s, root or the lab kernel.
"""

from emu.errors import UsageError
from emu.measure import ecn
from emu.nic.incast import inject
from emu.nic.receiver import Receivers
from emu.report.table import kilobytes
from emu.scenario import Column, Outcome, Parameter, ecn_profile, main, parameters
from emu.topology.model import nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

RAIL = 0                    # any would do: the rails are alike
QUIET_LOAD = 0.9            # the load up to which no queue may reach Kmin
HOPS = 2                    # packet-hops per packet: out of the sender's NIC, out of the leaf

PARAMETERS = parameters.select(
    "gpus_per_server", "wiring", "leaf_up", "qps", "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax",
    "ecn_profile", "buffer_bytes", "dilation",
    gpus=Parameter(int, 0, "GPUs, one NIC each; 0: just the servers that take part", minimum=0),
    leaf_down=16,
    size_bytes=mib(32),     # from each sender: long enough for the queue to pass the Kmax of a deep-buffer profile
    senders=Parameter(int, 8, "NICs that send to the one receiver", minimum=1, maximum=127),
    load=Parameter(float, (0.9, 1.1, 1.5), "offered load over the receiver's link rate", minimum=0.01, maximum=127),
)
COLUMNS = [
    Column("load"), Column("queue"), Column("offered_packets", "packets", ",d"),
    Column("ecn_marked_packets", "marked", ",d"), Column("ce_delivered_packets", "CE delivered", ",d"),
    Column("ce_share", "CE share", ".1%"), Column("dropped_packets", "dropped", ",d"),
    Column("depth_max_bytes", "depth max kB", kilobytes), Column("depth_p99_bytes", "depth p99 kB", kilobytes),
    Column("rates", "nominal/ emulated Gb/s"),
]


def servers(p):
    """As many as gpus says, or just enough."""
    if p.wiring == "rail" and p.senders >= p.leaf_down:
        raise UsageError(f"senders={p.senders} and the receiver don't fit under one leaf; want leaf_down >= {p.senders + 1}")
    least = (p.senders + 1) * p.gpus_per_server
    if p.gpus and (p.gpus < least or p.gpus % p.gpus_per_server):
        raise UsageError(f"gpus={p.gpus}: {p.senders} senders and a receiver need {least}, in steps of {p.gpus_per_server}")
    return p.gpus // p.gpus_per_server or p.senders + 1


def topology(p):
    return SpineLeaf(
        servers=servers(p), gpus_per_server=p.gpus_per_server, wiring=p.wiring, leaf_down=p.leaf_down, leaf_up=p.leaf_up,
        rate_bps=gbps(p.rate_gbps), delay_ns=p.delay_ns, path_mtu_bytes=p.mtu,
        queue=QueueProfile(buffer_bytes=p.buffer_bytes, ecn=ecn_profile(p)),
    ).topology()


def offered_hops_per_s(p):
    return HOPS * p.load * gbps(p.rate_gbps) / (8 * p.mtu)


def run(fabric, p):
    receiver, senders = nic(0, RAIL), [nic(1 + k, RAIL) for k in range(p.senders)]
    receivers = Receivers(fabric, [receiver])
    with ecn.Measured(fabric, receiver, receivers) as measured:
        measured.sent = inject(fabric, senders, receiver, -(-p.size_bytes // p.mtu), p.load, p.qps)
    checks = measured.checks(min(p.load, 1) * gbps(p.rate_gbps))
    return Outcome(rows=[{"load": p.load} | measured.row()], metrics=measured.metrics(), checks=checks)


def expect(result):
    for row in result.rows:
        if row["load"] <= QUIET_LOAD:
            assert row["ecn_marked_packets"] == 0, f"load {row['load']}: {row['ecn_marked_packets']} marks, want none"
        assert row["ce_delivered_packets"] <= row["ecn_marked_packets"], f"more CE than marks: {row}"


if __name__ == "__main__":
    main(__file__)
