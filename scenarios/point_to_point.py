"""How exact is time? Two GPUs through one switch, one way, against the arithmetic.

    srv1 rail0 ==== leaf0 ==== rail0 srv0               both links rate_gbps, delay_ns each; only these packets on them

Completion must be bytes / rate + path delay: every frame once over the bottleneck, the first one twice (store and forward),
plus propagation. The limit printed is what TBF's rounding (1 ns of kernel time a frame) and netem's (64 ns ticks) can add.
Expect: within 0.5 % at 100 to 1,600 Gb/s on the virtual clock. About 20 s, lab kernel (or root: then only as good as the CPU).
"""

from emu.measure import exactness
from emu.scenario import Column, Outcome, main, parameters
from emu.topology.model import nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

SENDER, RECEIVER = nic(1, 0), nic(0, 0)
TOLERANCE = 0.005           # of the ideal completion time
RTT_TOLERANCE = 0.01        # of the sum of the round trip's delays
LINKS = 2                   # on the way, one way

PARAMETERS = parameters.select(
    "mtu", "dilation", "buffer_bytes", size_bytes=mib(64), rate_gbps=(100, 400, 800, 1600), delay_ns=1000,
)
COLUMNS = [
    Column("rate_gbps", "nominal Gb/s"), Column("emulated_gbps", "emulated Gb/s", ".4g"), Column("dilation"),
    Column("delivered_packets", "packets", ",d"), Column("completion_us", "completion us", ",.3f"),
    Column("ideal_us", "ideal us", ",.3f"), Column("off", "off by", ".4%"), Column("rounding", "rounding limit", ".4%"),
    Column("rtt_ns", "RTT ns", ",.1f"), Column("rtt_ideal_ns", "RTT ideal ns", ",.1f"), Column("rtt_off", "off by", ".3%"),
]


def topology(p):
    return SpineLeaf(servers=2, gpus_per_server=1, wiring="rail", leaf_down=2, leaf_up=0, rate_bps=gbps(p.rate_gbps),
                     delay_ns=p.delay_ns, path_mtu_bytes=p.mtu, queue=QueueProfile(buffer_bytes=p.buffer_bytes)).topology()


def offered_hops_per_s(p):
    return LINKS * gbps(p.rate_gbps) / (8 * p.mtu)


def run(fabric, p):
    transfer = exactness.one_way(fabric, SENDER, RECEIVER, p.size_bytes)
    echo = exactness.round_trip(fabric, SENDER, RECEIVER)
    row = {"rate_gbps": p.rate_gbps, "dilation": fabric.dilation} | transfer.row() | echo.row()
    checks = [*transfer.checks(TOLERANCE), *echo.checks(RTT_TOLERANCE)]
    return Outcome(rows=[row], metrics=transfer.metrics(), checks=checks)


def expect(result):
    for row in result.rows:
        assert abs(row["off"]) <= TOLERANCE, f"{row['rate_gbps']} Gb/s: {row['completion_us']} us, want {row['ideal_us']}"
        rtt = f"RTT {row['rtt_ns']} ns, want {row['rtt_ideal_ns']}"
        assert abs(row["rtt_off"]) <= RTT_TOLERANCE, f"{row['rate_gbps']} Gb/s: {rtt}"


if __name__ == "__main__":
    main(__file__)
