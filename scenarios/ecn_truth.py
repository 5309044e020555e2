"""Does the queue mark as the ECN law says, at every depth?

    srv1 rail0 (fills) ==== leaf0 ==== rail0 srv0       the queue towards srv0 is grown to a depth and held there
    srv2 rail0 (holds) =======+

P(q) = 0 below Kmin, Pmax (q - Kmin)/(Kmax - Kmin) between, 1 from Kmax on: the acceptance test for switches (sonic-mgmt).
Expect: marks within the binomial band (99.9 %) of the law at each depth; not one below Kmin, every one above Kmax. About 10 s.
"""

from emu.measure import ecn, marking
from emu.nic.hold import hold_queue
from emu.nic.receiver import Receivers
from emu.report.table import kilobytes
from emu.scenario import Column, Outcome, Parameter, ecn_profile, main, parameters
from emu.topology.model import nic
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps

RECEIVER, FILLER, STEADY = nic(0, 0), nic(1, 0), nic(2, 0)
HOPS = 2                    # packet-hops per packet: out of the sender's NIC, out of the leaf

PARAMETERS = parameters.select(
    "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile", "buffer_bytes", "dilation",
    depth=Parameter(float, (-0.5, 0.1, 0.3, 0.5, 0.7, 0.9, 1.1), "held depth; 0 is Kmin, 1 is Kmax", minimum=-1, maximum=10),
    packets=Parameter(int, 8000, "packets sent through the held queue", minimum=100),
)
COLUMNS = [
    Column("depth"), Column("held_bytes", "held at kB", kilobytes), Column("depth_median_bytes", "median kB", kilobytes),
    Column("packets", "packets", ",d"), Column("law", "P by law", ".4f"), Column("expected", "expected marks", ",.0f"),
    Column("low", "band from", ",.0f"), Column("high", "to", ",.0f"), Column("ecn_marked_packets", "marked", ",d"),
    Column("in_band", "in band"), Column("dropped_packets", "dropped", ",d"),
]


def topology(p):
    queue = QueueProfile(buffer_bytes=p.buffer_bytes, ecn=ecn_profile(p))
    return SpineLeaf(servers=3, gpus_per_server=1, wiring="rail", leaf_down=3, leaf_up=0, rate_bps=gbps(p.rate_gbps),
                     path_mtu_bytes=p.mtu, queue=queue).topology()


def offered_hops_per_s(p):
    return HOPS * 2 * gbps(p.rate_gbps) / (8 * p.mtu)


def held_bytes(law, depth):
    ramp = law.kmax_bytes - law.kmin_bytes
    return round(law.kmin_bytes + depth * (ramp or law.kmin_bytes))


def run(fabric, p):
    law = ecn_profile(p)
    target = held_bytes(law, p.depth)
    with ecn.Measured(fabric, RECEIVER, Receivers(fabric, [RECEIVER])) as measured:
        held = hold_queue(fabric, FILLER, STEADY, RECEIVER, target, p.packets)
        measured.sent = held.sent
    chances = measured.chances() or marking.found_while_held(
        law, held.growing_packets, held.held_packets, target, held.depths)
    band = marking.band(chances, measured.law_deviation)
    row = measured.row()
    row |= {"depth": p.depth, "held_bytes": target, "packets": len(chances), "law": law.probability(target),
            "expected": band.expected, "low": band.low, "high": band.high,
            "depth_median_bytes": sorted(held.depths)[len(held.depths) // 2] if held.depths else 0,
            "in_band": band.holds(row["ecn_marked_packets"])}
    return Outcome(rows=[row], metrics=measured.metrics(), checks=measured.checks(gbps(p.rate_gbps)))


def expect(result):
    for row in result.rows:
        assert row["in_band"], (f"depth {row['depth']}: {row['ecn_marked_packets']} marks of {row['packets']}, "
                                f"want {row['low']:.0f} to {row['high']:.0f}")


if __name__ == "__main__":
    main(__file__)
