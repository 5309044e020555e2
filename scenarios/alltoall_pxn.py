"""How much time does PXN save an all-to-all, at which message size and load, and where does it save none?

    srvN gpu0..7 ==== nvsw of the server            rail k ==== leaf k ==== spine0..leaf_up-1        one group: leaf_down servers

pxn=off  every block goes from its GPU's NIC to its target's: between rails, so over the spine, where hashing decides
pxn=on   every block first goes over the scale-up domain to the GPU on the target's rail, then along that rail under its leaf
pattern=all_to_all sends equal blocks, size_bytes of each GPU in all; moe is the dispatch of a mixture of experts: as many tokens
as fit into size_bytes, each to top_k of experts, uneven. Fewer uplinks (leaf_up) load the spine more; with in_flight=8 PXN
serves one server at a time and stalls between them. A NIC's own work for a message or a connection takes no time here, so
what PXN saves by having fewer of them is not in the times.
Expect: bytes as the counters found them: off crosses the spine with just the blocks that change rail, on with none.
scale_up=none: what GPUs hand each other takes no time. About a minute, lab kernel.
"""

from emu.collectives.all_to_all import all_to_all
from emu.collectives.moe import Routing, moe_dispatch
from emu.collectives.placement import Placement
from emu.measure import pxn
from emu.measure.transfers import run_messages
from emu.nic.cluster import Cluster, over_both
from emu.scenario import Column, Outcome, Parameter, balancing, main, parameters, spine_leaf, transport
from emu.scenario.scale_up import described
from emu.scenario.sizes import as_text
from emu.topology.scale_up import with_scale_up
from emu.units import mib

APART = ("pattern", "lb", "leaf_up", "in_flight", "size_bytes")
PARAMETERS = parameters.select(
    "gpus_per_server", "wiring", "leaf_down", "rate_gbps", "mtu", "kmin_bytes", "kmax_bytes", "pmax", "ecn_profile",
    "buffer_bytes", "dilation", "payload", "icrc", "hash_seed", "cc", "lb", "planes", "spines",
    gpus=64, transport="sr", rto_us=5000, window_packets=256,
    delay_ns=500,           # of a link, with what a switch adds
    scale_up="switch", technology="nvlink4", domain_gpus=8,
    pattern=Parameter(str, ("all_to_all", "moe"), "equal blocks, or tokens to their experts", choices=("all_to_all", "moe")),
    leaf_up=(8, 4),         # 1:1 and 2:1
    pxn=Parameter(str, ("off", "on"), "hand blocks to the GPU on the target's rail", choices=("off", "on")),
    begin_bytes=Parameter(int, 64 << 10, "smallest size of a GPU's blocks together", "bytes", minimum=1),
    end_bytes=Parameter(int, mib(4), "sizes up to this one", "bytes", minimum=1),
    factor=Parameter(int, 8, "each size over the one before", minimum=2),
    in_flight=Parameter(int, 32, "blocks that a GPU has under way", minimum=1),
    token_bytes=Parameter(int, 7168, "of a token (DeepSeek-V3: 7168 values in FP8)", "bytes", minimum=1),
    experts=Parameter(int, 256, "over all GPUs", minimum=1),
    top_k=Parameter(int, 8, "experts a token goes to", minimum=1),
    skew=Parameter(float, 0.5, "popularity of experts as 1/place^skew", minimum=0),
)
COLUMNS = [
    Column("pattern"), Column("leaf_up"), Column("pxn"), Column("size_bytes", "size", as_text),
    Column("cross_rail_bytes", "cross-rail MB", lambda size: f"{size / 1e6:,.2f}"),
    Column("same_rail_bytes", "same rail MB", lambda size: f"{size / 1e6:,.2f}"),
    Column("scale_up_bytes", "scale-up MB", lambda size: f"{size / 1e6:,.2f}"),
    Column("all_uplinks_bytes", "uplinks, on the wire MB", lambda size: f"{size / 1e6:,.2f}"),
    Column("messages", "messages", ",d"), Column("connections", "connections", ",d"),
    Column("completion_us", "time us", ",.1f"), Column("busbw_fraction", "of ideal", ".1%"),
    Column("ecn_marked_packets", "marked", ",d"), Column("dropped_packets", "dropped", ",d"),
]


def topology(p):
    rails = spine_leaf(p)
    return with_scale_up(rails, described(p)) if described(p) else rails


def run(fabric, p):
    cluster, rows, checks, warnings = Cluster(gpus_per_server=p.gpus_per_server, scale_up=described(p)), [], [], []
    for size_bytes in sizes(p):
        found = schedule(p, size_bytes)
        messages = over_both(found, cluster)
        with balancing(fabric, p, messages):
            transferred = run_messages(fabric, messages, transport(p))
        rows.append({name: p.as_dict()[name] for name in (*APART[:-1], "pxn")}
                    | {"size_bytes": size_bytes} | pxn.row(found, transferred))
        checks += transferred.checks()
        warnings = transferred.warnings()
    return Outcome(rows=rows, metrics=transferred.metrics(), checks=checks, warnings=warnings, series=pxn.curve(rows))


def sizes(p):
    size_bytes = p.begin_bytes
    while size_bytes <= p.end_bytes:
        yield size_bytes
        size_bytes *= p.factor


def schedule(p, size_bytes):
    placement, relay = Placement(p.gpus, p.gpus_per_server), p.pxn == "on"
    if p.pattern == "all_to_all":
        return all_to_all(placement, size_bytes, pxn=relay, in_flight=p.in_flight)
    tokens = max(1, size_bytes // (p.token_bytes * p.top_k))
    routing = Routing(tokens=tokens, token_bytes=p.token_bytes, experts=p.experts, top_k=p.top_k, skew=p.skew)
    return moe_dispatch(placement, routing, seed=p.seed, pxn=relay, in_flight=p.in_flight)


def conclude(result):
    return pxn.saved(result.rows, APART)


def expect(result):
    for row in result.rows:
        where = ", ".join(f"{name}={row[name]}" for name in (*APART, "pxn"))
        found, least, most = (row[name] for name in ("all_uplinks_bytes", "uplinks_least_bytes", "uplinks_most_bytes"))
        assert least <= found <= most or row["retransmitted_packets"], f"{where}: {found} bytes up, want {least} to {most}"
        assert (row["cross_rail_bytes"] == 0) == (row["pxn"] == "on"), f"{where}: {row['cross_rail_bytes']} bytes change rail"
    for off, on in pxn.pairs(result.rows, APART):
        moved = on["same_rail_bytes"] - off["same_rail_bytes"]
        assert moved == off["cross_rail_bytes"] > 0, f"{moved} bytes moved to their rail, {off['cross_rail_bytes']} had to"


if __name__ == "__main__":
    main(__file__)
