"""What does a scale-up domain give one pair of GPUs, and what all of them: by cables, or by switches?

    full_mesh      gpu === gpu   7 cables each       switch           gpu === nvsw0
    hybrid_mesh    4 | 4, counterparts joined        two_tier_switch  gpu === nvleaf0 === nvspine0 === nvleaf1

A mesh divides an accelerator's bandwidth among its cables: 1/(n-1) is all that any pair gets (1/(n/2) of a hybrid mesh, whose
other pairs are relayed). A switch gives all of it to any one. Together they give the same, but for the hybrid mesh, whose
halves are joined by few cables. Small messages: is an end-to-end time under 1 us held?
Expect: a pair's bandwidth within 1 % of the arithmetic, all pairs' within 10 %, latencies what links and switches of the way add
up to. Bandwidth is of data; headers are RoCE's, not the technology's own. About two minutes, lab kernel.
"""

from emu.measure.scale_up import measure
from emu.scenario import Column, Outcome, Parameter, main, parameters, transport
from emu.topology.scale_up import ScaleUp, scale_up_alone
from emu.topology.scale_up_profiles import profile
from emu.units import mib

LEAST = {"pair": 0.99, "far": 0.99, "all": 0.9}     # of the arithmetic; all: the NIC's start and FIFO queues at TB/s
MOST = 1.001                # a shaper's burst
LATENCY_OFF_NS = 0.1        # rounding to netem's 64 ns and TBF's 1 ns of kernel time

PARAMETERS = parameters.select(
    "mtu", "transport", "icrc", "rto_us", "payload", "dilation", "planes", "spines",
    scale_up=("full_mesh", "hybrid_mesh", "switch", "two_tier_switch"),
    technology=("nvlink1", "nvlink4", "nvlink6", "ualink200", "sue", "ub"),
    gpus_per_server=4,                      # trays of four: the domain spans servers
    domain_gpus=Parameter(int, 8, "GPUs of the domain, each with a connection to each", minimum=2, maximum=128),
    cc="none",                              # credits hold back where DCQCN would slow down
    size_bytes=mib(16),                     # from GPU to GPU; of 56 pairs at once 940 MB
    window_packets=1024,                    # what is in flight at 1.8 TB/s over two tiers
    message_bytes=Parameter(int, 64, "small message, as memory semantics have them", "bytes", minimum=1, maximum=4096),
)
COLUMNS = [
    Column("scale_up"), Column("technology"), Column("gpu_GBps", "GPU GB/s, one way", ",.0f"),
    Column("pair_GBps", "pair GB/s", ",.1f"), Column("pair_share", "of GPU's", ".1%"),
    Column("far_GBps", "furthest pair GB/s", ",.1f"), Column("all_GBps", "all pairs GB/s a GPU", ",.1f"),
    Column("all_share", "of GPU's", ".1%"), Column("pair_ns", "pair ns", ",.1f"),
    Column("one_way_p50_ns", "all p50 ns", ",.1f"), Column("one_way_max_ns", "max ns", ",.1f"),
    Column("round_trip_max_ns", "round trip max ns", ",.1f"), Column("under_1us", "under 1 us"),
]


def described(p):
    return ScaleUp(kind=p.scale_up, technology=profile(p.technology), gpus_per_server=p.gpus_per_server,
                   domain_gpus=p.domain_gpus, planes=p.planes, spines=p.spines)


def topology(p):
    domain = described(p)
    return scale_up_alone(max(1, -(-p.domain_gpus // p.gpus_per_server)), domain, p.mtu)


def run(fabric, p):
    measured = measure(fabric, described(p), p.size_bytes, p.message_bytes, transport(p))
    row = {"scale_up": p.scale_up, "technology": p.technology} | measured.row()
    return Outcome(rows=[row], metrics=measured.metrics(), checks=measured.checks())


def expect(result):
    for row in result.rows:
        name = f"{row['scale_up']}, {row['technology']}"
        for key, least in LEAST.items():
            got, want = row[f"{key}_GBps"], row[f"{key}_ideal_GBps"]
            limits = f"want {least:.0%} to {MOST:.1%} of {want:.1f}"
            assert least * want <= got <= MOST * want, f"{name}: {key} {got:.1f} GB/s, {limits}"
        late_ns = row["one_way_max_ns"] - row["one_way_ideal_max_ns"]
        assert abs(late_ns) <= LATENCY_OFF_NS, f"{name}: {row['one_way_max_ns']} ns one way, want {row['one_way_ideal_max_ns']}"


if __name__ == "__main__":
    main(__file__)
