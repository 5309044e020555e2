"""How long do loads and stores of 64 to 256 bytes take in a scale-up domain, and how much longer under load?

    gpu === cable === gpu        or        gpu === nvsw0 === gpu        8 GPUs, each accesses random others at random moments

Memory semantics: a write is one message, a read a request and its answer, and none waits for another. Latency is from the
moment of issue to the arrival of the data. A cable of a mesh is slow, so that a frame waits long for the one before it; at a
switch the accesses of all meet at one port, which is fast.
Expect: at the lightest load the median is what the way adds up to, no access is faster, and the load is the one asked for.
About three minutes, lab kernel.
"""

from emu.measure.memory_access import Accesses, measure
from emu.scenario import Column, Outcome, Parameter, main, parameters, transport
from emu.topology.metronome import with_metronomes
from emu.topology.scale_up import ScaleUp, scale_up_alone
from emu.topology.scale_up_profiles import profile

LOAD_OFF = 0.05             # of the load asked for: gaps and targets are random
HYBRID_FULL = 0.6           # a hybrid mesh takes no more: the cables between its halves are full
LIGHT, LIGHT_LATE = 0.2, 0.05       # up to this load the median is at most this share later than on idle links

PARAMETERS = parameters.select(
    "transport", "icrc", "rto_us", "payload", "dilation", "planes", "spines",
    scale_up=("full_mesh", "switch"), technology="nvlink4", gpus_per_server=4, domain_gpus=8,
    cc="none",                      # credits hold back where DCQCN would slow down
    mtu=256,                        # as an NVLink or UALink packet; a shaper's burst is one frame of it
    window_packets=1024,            # per pair and direction: accesses in flight at 0.9 of 1.8 TB/s
    access=Parameter(str, ("read", "write"), "load or store", choices=("read", "write")),
    access_bytes=Parameter(int, (64, 256), "of one access", "bytes", minimum=1, maximum=256),
    load=Parameter(float, (0.1, 0.5, 0.9), "share of a GPU's bandwidth that frames take", minimum=0.001, maximum=1),
    accesses=Parameter(int, 4000, "from each GPU", minimum=100, maximum=20_000),
)
COLUMNS = [
    Column("scale_up"), Column("access"), Column("access_bytes", "bytes"), Column("load", "load", ".2f"),
    Column("load_measured", "measured", ".3f"), Column("idle_min_ns", "idle least ns", ",.0f"),
    Column("idle_p50_ns", "idle p50 ns", ",.0f"), Column("min_ns", "least ns", ",.1f"),
    Column("p50_ns", "p50 ns", ",.1f"), Column("p99_ns", "p99 ns", ",.1f"), Column("p999_ns", "p99.9 ns", ",.1f"),
    Column("max_ns", "max ns", ",.1f"), Column("accesses", "accesses", ",d"),
]


def described(p):
    domain = ScaleUp(kind=p.scale_up, technology=profile(p.technology), gpus_per_server=p.gpus_per_server,
                     domain_gpus=p.domain_gpus, planes=p.planes, spines=p.spines)
    return domain, Accesses(access=p.access, size_bytes=p.access_bytes, load=p.load, count=p.accesses, seed=p.seed)


def topology(p):
    domain, accesses = described(p)
    alone = scale_up_alone(max(1, -(-p.domain_gpus // p.gpus_per_server)), domain, p.mtu)
    return with_metronomes(alone, accesses.metronome_bps(domain, p.mtu))


def run(fabric, p):
    accessed = measure(fabric, *described(p), transport(p))
    named = {name: p.as_dict()[name] for name in ("scale_up", "technology", "access", "access_bytes", "load")}
    transferred = accessed.transferred
    return Outcome(rows=[named | accessed.row()], metrics=transferred.metrics(), checks=transferred.checks())


def expect(result):
    for row in result.rows:
        name = f"{row['scale_up']}, {row['access']} of {row['access_bytes']} bytes at {row['load']}"
        assert row["min_ns"] >= row["idle_min_ns"] - 0.1, f"{name}: {row['min_ns']} ns, idle links need {row['idle_min_ns']}"
        off = row["load_measured"] / row["load"] - 1
        full = row["scale_up"] == "hybrid_mesh" and row["load"] > HYBRID_FULL
        assert full or abs(off) <= LOAD_OFF, f"{name}: load {row['load_measured']:.3f}, {off:+.1%}, allowed {LOAD_OFF:.0%}"
        if row["load"] <= LIGHT:
            late = row["p50_ns"] / row["idle_p50_ns"] - 1
            assert late <= LIGHT_LATE, f"{name}: median {row['p50_ns']:.1f} ns, {late:+.1%} over idle links"


if __name__ == "__main__":
    main(__file__)
