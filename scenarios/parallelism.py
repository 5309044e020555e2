"""What does one training iteration send, how much of it leaves the servers, and how long does it take on this cluster?

    tensor parallel   inside a server      pipeline, data, expert parallel   from NIC to NIC      rank = tp + TP·(dp + DP·pp)

The iteration's events (emu/workload/iteration.py) become one chain of messages: computations on a clock of each GPU, collectives
over scale-up ports and NICs, each rank going on as soon as it has what it waits for. plot.svg: the iteration, stage by stage.
All of it would be a day's work: `layers` of them are emulated, sizes and compute times over `scale_down`; latencies are not
scaled. The bytes of the whole iteration stand beside. DeepSeek-V3: model=deepseek-v3 tp=1 pp=2 dp=16 ep=16 layers=8.
workload=FILE (SimAI) in place of a model; nccl_topology=FILE says which NIC belongs to which GPU. scale_up=none: what stays in
a server takes no time. "Over scale-up" has what is handed to another GPU's NIC as well.
Expect: bytes as by the closed forms, to the byte, on paper and on the wire. About 30 s, lab kernel.
"""

from emu.measure.iteration import Iteration
from emu.measure.transfers import run_messages
from emu.nic.cluster import Cluster
from emu.nic.iteration import chain
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, spine_leaf, transport
from emu.scenario.iteration import clock, emulated, links, nic_of
from emu.scenario.scale_up import described
from emu.topology.metronome import with_metronomes
from emu.topology.scale_up import with_scale_up
from emu.workload.model import MODELS

PARAMETERS = parameters.select(
    "gpus_per_server", "wiring", "leaf_down", "leaf_up", "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile",
    "buffer_bytes", "dilation", "payload", "icrc", "hash_seed", "cc", "lb", "window_packets", "planes", "spines",
    transport="sr", rto_us=5000, delay_ns=500, scale_up="switch", technology="nvlink4", domain_gpus=8,
    model=Parameter(str, "llama3-70b", "whose iteration", choices=tuple(MODELS)),
    workload=Parameter(str, "", "SimAI workload file, in place of a model"),
    nccl_topology=Parameter(str, "", "NCCL topology file of a server: the NIC of each GPU"),
    tp=Parameter(int, 8, "tensor parallel ranks", minimum=1),
    pp=Parameter(int, 2, "pipeline stages", minimum=1),
    dp=Parameter(int, 2, "data parallel replicas; of a workload file: as many of its replicas", minimum=1),
    ep=Parameter(int, 1, "expert parallel ranks", minimum=1),
    micro_batches=Parameter(int, 4, "of a replica and iteration", minimum=1),
    sequence=Parameter(int, 4096, "tokens of a micro-batch", minimum=1),
    layers=Parameter(int, 4, "layers, or lines of a workload file, that are emulated; 0: all", minimum=0),
    scale_down=Parameter(int, 64, "sizes and compute times are divided by it", minimum=1),
    pxn=Parameter(str, "off", "expert parallelism hands blocks to the GPU on the target's rail", choices=("off", "on")),
)
COLUMNS = [
    Column("kind"), Column("iteration_bytes", "iteration bytes", ",d"), Column("formula_bytes", "by closed form", ",d"),
    Column("emulated_bytes", "emulated bytes", ",d"), Column("nic_placed_bytes", "placed by NICs", ",d"),
    Column("scale_up_placed_bytes", "over scale-up", ",d"), Column("busy_us", "time, all stages us", ",.1f"),
    Column("bound_us", "at link rate us", ",.1f"),
]


def topology(p):
    nic_of(p)   # refuses a wrong file before anything is built
    rails = spine_leaf(p, gpus(p))
    joined = with_scale_up(rails, described(p)) if described(p) else rails
    return with_metronomes(joined, clock(p).rate_bps)


def gpus(p):
    """In whole servers."""
    return -(-emulated(p).ranks // p.gpus_per_server) * p.gpus_per_server


def run(fabric, p):
    cluster = Cluster(gpus_per_server=p.gpus_per_server, scale_up=described(p), nic_of=nic_of(p))
    work = chain(emulated(p).events, cluster, clock(p), pxn=p.pxn == "on")
    with balancing(fabric, p, work.messages):
        transferred = run_messages(fabric, work.messages, transport(p))
    found = Iteration(emulated(p), work, transferred, clock(p), links(p))
    return Outcome(rows=[row | {"pxn": p.pxn} for row in found.rows()], metrics=found.metrics(), checks=found.checks(),
                   bars=found.picture(), warnings=[*transferred.warnings(), emulated(p).said])


def expect(result):
    for row in result.rows:
        kind = row["kind"]
        if "iteration_bytes" not in row:
            assert row["busy_us"] >= 0.99 * row["bound_us"], f"{kind}: {row['busy_us']} us, link rates allow {row['bound_us']}"
            continue
        assert row["iteration_bytes"] == row.get("formula_bytes", row["iteration_bytes"]), f"{kind}: {row}"
        handed = kind == "ep" and row["pxn"] == "on"    # PXN's first step comes on top
        assert handed or row["listed_bytes"] == row["emulated_bytes"], f"{kind}: {row['listed_bytes']} bytes in schedules, {row}"
        assert row["nic_placed_bytes"] == row["scale_out_bytes"], f"{kind}: NICs placed {row['nic_placed_bytes']}, {row}"


if __name__ == "__main__":
    main(__file__)
