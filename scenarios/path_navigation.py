"""Does a controller that knows every connection keep its promise of the busiest link, also after a cable has died?

    srv0 rail0..7 ==== leaf0 ==== spine0..leaf_up-1 ==== leaf1 ==== srv1 rail0..7      non-blocking: leaf_up = leaf_down

The controller is told the connections before the first packet, computes all paths at once by edge colouring, and states the
most bytes on any link, up or down. "bound" is below what nobody can get. The same traffic runs on a new fabric for each
of `fail`: none, or a cable that is dead from the start, whose flows the controller has moved. "off" is the busiest link's bytes
over the promise with headers; what is left are acknowledgements. How long computing takes: ./lab bench paths.
traffic=permutation  every NIC sends size_bytes to one NIC under another leaf: the bound is reached, no flow shares a link
traffic=all_to_all   groups of group_gpus NICs strided over the leaves, size_bytes from each NIC in all
Expect: promise = bound for the permutation; every busiest link within 1 % of its promise; a dead cable carries nothing.
About 60 s, lab kernel.
"""

from random import Random

from emu.measure import links
from emu.measure.navigation import Promise
from emu.measure.transfers import run_messages
from emu.nic import traffic
from emu.nic.controller import PathController
from emu.scenario import Check, Column, Outcome, Parameter, main, parameters, spine_leaf, transport
from emu.units import mib

WITHIN = 0.01               # acknowledgements are 0.4 % of the bytes

PARAMETERS = parameters.select(
    "gpus_per_server", "leaf_down", "leaf_up", "rate_gbps", "mtu", "delay_ns", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile",
    "buffer_bytes", "dilation", "payload", "icrc",
    gpus=64, wiring="single", qps=4, size_bytes=mib(4), transport="sr", cc="none", rto_us=100,
    window_packets=16,      # as in ecmp_imbalance
    traffic=Parameter(str, ("permutation", "all_to_all"), "who sends to whom", choices=("permutation", "all_to_all")),
    group_gpus=Parameter(int, 16, "NICs that exchange all to all", minimum=2),
    fail=Parameter(str, ("none", "leaf0:up0"), "uplink whose cable is dead, or none"),
)


def megabytes(size_bytes):
    return f"{size_bytes / 1e6:,.3f}"


COLUMNS = [
    Column("traffic"), Column("fail", "dead"), Column("flows", "flows", ",d"), Column("moved_flows", "moved flows", ",d"),
    Column("bound_max_bytes", "bound MB", megabytes), Column("promised_max_bytes", "promised MB", megabytes),
    Column("uplink_max_bytes", "busiest up MB", megabytes), Column("uplink_off", "off", "+.2%"),
    Column("downlink_max_bytes", "busiest down MB", megabytes), Column("downlink_off", "off", "+.2%"),
    Column("dead_link_bytes", "bytes on dead link", ",d"), Column("completion_us", "completion us", ",.1f"),
]


def topology(p):
    return spine_leaf(p)


def run(fabric, p):
    messages = traffic.PATTERNS[p.traffic](fabric.plan.topology, traffic.Size(p.size_bytes, p.qps, p.group_gpus), Random(p.seed))
    controller = PathController(fabric.plan, messages)
    with controller.mode.install(fabric) as installed:
        controller.follow(installed)
        with links.dead(fabric, p.fail, (installed, controller)) as cables:
            transferred = run_messages(fabric, messages, transport(p))
            promise = Promise(controller.navigation, transferred, cables)   # as it is now: a repaired cable moves flows back
        unknown = sum(installed.counters().unknown.values())
    row = {"traffic": p.traffic, "fail": p.fail} | transferred.row() | promise.row()
    checks = [*transferred.checks(cables), Check("packets without a path", unknown, 0, ok=not unknown, unit="packets")]
    return Outcome(rows=[row], metrics=[*transferred.metrics(), *promise.metrics()], checks=checks,
                   warnings=transferred.warnings())


def expect(result):
    for row in result.rows:
        where = f"{row['traffic']}, dead: {row['fail']}"
        for off in ("uplink_off", "downlink_off"):
            assert abs(row[off]) <= WITHIN, f"{where}: {off} {row[off]:+.2%}, want {WITHIN:.0%} of the promise"
        if row["traffic"] == "permutation":
            promised, bound = row["promised_max_bytes"], row["bound_max_bytes"]
            assert promised == bound, f"{where}: {promised} bytes promised, {bound} are enough"
        if row["fail"] != links.NONE:
            assert row["dead_link_bytes"] == 0, f"{where}: {row['dead_link_bytes']} bytes on the dead link"
            assert row["moved_flows"] > 0, f"{where}: no flow moved"


if __name__ == "__main__":
    main(__file__)
