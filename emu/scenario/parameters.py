"""The knobs of a scenario: those that mean the same in every scenario (docs/design.md), and how one selects its own.

    PARAMETERS = parameters.select(
        "mtu", "kmin_bytes",                # common ones, with the defaults below
        rate_gbps=100, lb=("ecmp", "spray"),    # common ones with this scenario's default; a tuple = one row each
        senders=Parameter(int, 8, "hosts that send to the one receiver", minimum=1))    # its own, or one narrowed

Defaults: a 400 Gb/s rail cluster of four 8-GPU servers, SONiC's own ECN profile (AZURE_LOSSLESS, qos_config.j2), and
NCCL's one QP per connection and 1 MiB network message.
"""

from __future__ import annotations

from dataclasses import replace

from emu.collectives.catalogue import ALL_REDUCE
from emu.errors import unknown
from emu.scenario.choice import ParameterSet, ValueOrList
from emu.scenario.parameter import Parameter
from emu.units import mib

COMMON = {
    "gpus": Parameter(int, 32, "GPUs, one NIC each", minimum=1),
    "gpus_per_server": Parameter(int, 8, "GPUs, and so NICs, of a server", minimum=1),
    "wiring": Parameter(
        str, "rail", "NIC k of every server to leaf k, or all NICs of a server to one leaf", choices=("rail", "single")
    ),
    "leaf_down": Parameter(int, 8, "leaf ports towards NICs", "ports", minimum=1),
    "leaf_up": Parameter(int, 8, "leaf ports towards spines", "ports", minimum=0),
    "topology": Parameter(
        str, "spine_leaf", "how switches are joined; all NICs of a server go to one",
        choices=("spine_leaf", "fat_tree", "torus", "dragonfly", "dragonfly_plus"),
    ),
    "radix": Parameter(int, 8, "ports of every switch of a fat tree", "ports", minimum=2),
    "edge_up": Parameter(int, 0, "uplinks of a fat tree's edge; 0: half of radix, which is 1:1", "ports", minimum=0),
    "dims": Parameter(str, "4x8", "nodes in each dimension of a torus"),
    "group_switches": Parameter(int, 4, "routers of a dragonfly's group; leaves, and spines, of a dragonfly+'s", minimum=1),
    "switch_gpus": Parameter(int, 2, "NICs at each of these routers or leaves", minimum=1),
    "global_ports": Parameter(int, 2, "ports out of the group at each of these routers or spines", "ports", minimum=1),
    "rate_gbps": Parameter(int, 400, "nominal rate of every link", "Gb/s", minimum=1, maximum=1600),
    "mtu": Parameter(
        int, 4096, "RoCE path MTU, the payload of a full packet", "bytes", choices=(256, 512, 1024, 2048, 4096)
    ),
    "delay_ns": Parameter(int, 0, "one-way propagation of a link, in fabric time", "ns", minimum=0),
    "lb": Parameter(
        str,
        "ecmp",
        "how a leaf chooses the uplink",
        choices=("ecmp", "eecmp", "path", "spray", "spray_random", "spray_rr", "flowlet", "ddc"),
    ),
    "hash_seed": Parameter(str, "per_switch", "ECMP's seeds; shared polarizes on purpose", choices=("per_switch", "shared")),
    "algo": Parameter(
        str,
        "ring",
        "collective algorithm",
        choices=tuple(ALL_REDUCE),
    ),
    "size_bytes": Parameter(int, mib(1), "message size", "bytes", minimum=1),
    "qps": Parameter(int, 1, "queue pairs per connection", minimum=1, maximum=128),
    "kmin_bytes": Parameter(int, mib(1), "queue length from which packets are marked", "bytes", minimum=1),
    "kmax_bytes": Parameter(int, mib(2), "queue length from which every packet is marked", "bytes", minimum=1),
    "pmax": Parameter(float, 0.05, "marking probability just below kmax_bytes", minimum=0, maximum=1),
    "ecn_profile": Parameter(str, "", "SONiC CONFIG_DB FILE[:NAME] with a WRED_PROFILE, in place of kmin, kmax, pmax"),
    "transport": Parameter(str, "gbn", "loss repair: go-back-N or selective repeat", choices=("gbn", "sr")),
    "cc": Parameter(str, "dcqcn", "congestion control of the NICs", choices=("dcqcn", "none")),
    "window_packets": Parameter(int, 256, "packets in flight per queue pair", "packets", minimum=1, maximum=1024),
    "rto_us": Parameter(int, 2000, "time without progress after which a NIC sends again", "us", minimum=10),
    "payload": Parameter(str, "elided", "carry the payload, or only account for it", choices=("elided", "full")),
    "icrc": Parameter(str, "off", "compute and check the iCRC of every packet; off leaves it 0", choices=("off", "on")),
    "dilation": Parameter(int, 0, "how much slower than the fabric the kernel runs it; 0 chooses", minimum=0),
    "buffer_bytes": Parameter(int, mib(16), "room of a port's queue; what does not fit is dropped", "bytes", minimum=1),
    "scale_up": Parameter(
        str, "none", "what joins the GPUs of a domain besides their NICs",
        choices=("none", "full_mesh", "hybrid_mesh", "switch", "two_tier_switch"),
    ),
    "technology": Parameter(
        str, "nvlink4", "of the scale-up links: their number, rate and latency",
        choices=("nvlink1", "nvlink2", "nvlink3", "nvlink4", "nvlink5", "nvlink6", "ualink200", "sue", "ub", "infinity_fabric"),
    ),
    "domain_gpus": Parameter(int, 8, "GPUs of a scale-up domain, which may span servers", minimum=2, maximum=1024),
    "planes": Parameter(int, 1, "planes of scale-up switches, with an equal share of the bandwidth each", minimum=1),
    "spines": Parameter(int, 1, "scale-up spines of each plane, in two tiers", minimum=1),
    "capture": Parameter(str, "", "ports to record as pcapng in --out, joined by +: srv0:rail0+leaf0:down1"),
}

EVERY = ("capture",)  # honoured by the runner, so every scenario has them


def select(*names: str, **own: Parameter | ValueOrList) -> ParameterSet:
    """The parameters that a scenario honours: common ones by name, then its own (see the top of this file)."""
    chosen = {}
    for name in (*names, *own, *EVERY):
        declared = own.get(name)
        if isinstance(declared, Parameter):
            chosen[name] = declared
        elif name not in COMMON:
            raise unknown("common parameter", name, COMMON)
        else:
            chosen[name] = replace(COMMON[name], default=declared) if name in own else COMMON[name]
    return ParameterSet(chosen)
