"""How long do the flows of an htsim connection matrix take on this fabric, load balancer by load balancer?

matrix=FILE  who sends how many bytes to whom, when or after what; node n is GPU n. Default: profiles/permutation_then_incast.cm
htsim_topology=FILE  the cluster, every node a server with one NIC; default: gpus_per_server GPUs a server, wired as given
A flow that a trigger starts on another server starts with a 64-byte notice from there, for which htsim needs no time.
Expect: nothing faster than its busiest NIC at line rate, and nothing slower than all flows one after the other. 20 s, lab kernel.
"""

from pathlib import Path

from emu.errors import UsageError
from emu.measure.flows import Measured
from emu.measure.transfers import run_messages
from emu.nic.cluster import Cluster
from emu.nic.connection_matrix import flows, start_gaps_ns
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, queue_profile, spine_leaf, transport
from emu.topology.metronome import with_metronomes
from emu.workload.compute_clock import ComputeClock
from emu.workload.htsim_matrix import read_connection_matrix
from emu.workload.htsim_topology import read_topology

DEFAULT = Path(__file__).parent / "profiles" / "permutation_then_incast.cm"
SLOWEST, LATENCY_US = 3, 20      # times line rate, and for each flow: beyond is a run that repairs all the time

PARAMETERS = parameters.select(
    "wiring", "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "buffer_bytes", "dilation", "payload",
    "icrc", "hash_seed", "cc", "window_packets",
    gpus_per_server=4, leaf_down=4, leaf_up=4, transport="sr", rto_us=5000, delay_ns=500, lb=("ecmp", "spray"),
    matrix=Parameter(str, "", "htsim connection matrix"),
    htsim_topology=Parameter(str, "", "htsim topology file, in place of the cluster described here"),
)
COLUMNS = [
    Column("lb"), Column("flows", "flows", ",d"), Column("flow_bytes", "MB", lambda size: f"{size / 1e6:,.1f}"),
    Column("notices", "notices", ",d"), Column("fct_p50_us", "flow p50 us", ",.1f"), Column("fct_p99_us", "flow p99 us", ",.1f"),
    Column("fct_max_us", "slowest flow us", ",.1f"), Column("last_us", "last byte us", ",.1f"),
    Column("ideal_us", "busiest NIC us", ",.1f"), Column("ecn_marked_packets", "marked", ",d"),
    Column("dropped_packets", "dropped", ",d"), Column("retransmitted_packets", "sent again", ",d"),
]


def matrix(p):
    return read_connection_matrix(p.matrix or str(DEFAULT))


def server_gpus(p):
    """Of a server; a node of htsim's is one."""
    return 1 if p.htsim_topology else p.gpus_per_server


def clock(p):
    return ComputeClock.for_times(start_gaps_ns(matrix(p)), p.mtu)


def topology(p):
    nodes = matrix(p).nodes
    if p.htsim_topology:
        cluster = read_topology(p.htsim_topology, queue_profile(p), p.mtu)
    else:
        cluster = spine_leaf(p, -(-nodes // p.gpus_per_server) * p.gpus_per_server)
    if cluster.gpus < nodes:
        raise UsageError(f"{p.htsim_topology} has {cluster.gpus} nodes, the matrix {nodes}; want at least as many")
    return with_metronomes(cluster, clock(p).rate_bps)


def run(fabric, p):
    work = flows(matrix(p), Cluster(gpus_per_server=server_gpus(p)), clock(p))
    with balancing(fabric, p, work.messages):
        transferred = run_messages(fabric, work.messages, transport(p))
    measured = Measured(work, transferred)
    return Outcome(rows=[{"lb": p.lb} | measured.row() | transferred.row()], checks=transferred.checks(),
                   metrics=[*measured.metrics(), *transferred.metrics()], warnings=transferred.warnings())


def expect(result):
    for row in result.rows:
        serial_us = row["flows"] * (SLOWEST * row["ideal_us"] + LATENCY_US)
        assert row["ideal_us"] <= row["last_us"], f"{row['lb']}: {row['last_us']} us, the busiest NIC needs {row['ideal_us']}"
        assert row["fct_max_us"] <= serial_us, f"{row['lb']}: slowest flow {row['fct_max_us']} us, want at most {serial_us}"


if __name__ == "__main__":
    main(__file__)
