"""Promises of the way that a transfer takes over ports: relays named, switches that add at their own ports, misfits refused."""

from __future__ import annotations

import pytest

from emu.collectives.catalogue import schedule
from emu.collectives.placement import Placement
from emu.collectives.traffic import scale_out_only
from emu.errors import RailbedError
from emu.nic.cluster import Cluster
from emu.nic.ways import ways
from emu.topology.plan import Plan, make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.scale_up import ScaleUp, with_scale_up
from emu.topology.scale_up_profiles import profile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib


def cluster(kind: str = "switch", gpus: int = 2, leaf_down: int = 3) -> tuple[Cluster, Plan]:
    """Three servers."""
    rails = SpineLeaf(servers=3, gpus_per_server=gpus, wiring="rail", leaf_down=leaf_down, leaf_up=1, rate_bps=gbps(400),
                      queue=QueueProfile(buffer_bytes=mib(1))).topology()
    if kind == "none":
        return Cluster(gpus_per_server=gpus), make_plan(rails, seed=1)
    scale_up = ScaleUp(kind=kind, technology=profile("nvlink4"), gpus_per_server=gpus, domain_gpus=gpus)
    return Cluster(gpus_per_server=gpus, scale_up=scale_up), make_plan(with_scale_up(rails, scale_up), seed=1)


def found(name: str, ranks: int, described: tuple[Cluster, Plan], **options) -> dict[tuple[int, int], str]:
    """(source, target) -> the ports of the way, of the first transfer between them."""
    collective = schedule(name, Placement(ranks, described[0].gpus_per_server), 4096, **options)
    ends: dict[tuple[int, int], str] = {}
    for transfer, way in zip(collective.transfers, ways(collective, *described), strict=True):
        ends.setdefault((transfer.source, transfer.target), ", ".join(f"{source} > {target}" for source, target in way))
    return ends


@pytest.mark.parametrize(("kind", "gpus", "name", "between", "way"), [
    ("switch", 2, "ring", (0, 1), "srv0:nv0 > srv0:nv1"),
    ("switch", 2, "ring", (1, 2), "srv0:nv1 > srv0:nv0, srv0:rail0 > srv1:rail0"),  # channel 0 leaves on rail 0
    ("full_mesh", 2, "ring", (0, 1), "srv0:nv0to1 > srv0:nv1to0"),
    ("hybrid_mesh", 4, "all_to_all", (0, 3), "srv0:nv0to2 > srv0:nv2to0, srv0:nv2to3 > srv0:nv3to2"),
    ("switch", 2, "all_to_all", (0, 3), "srv0:rail0 > srv1:rail1"),
    ("none", 1, "ring", (0, 1), "srv0:rail0 > srv1:rail0"),
    ("switch", 2, "nvls_tree", (1, 6), "srv0:nv1 > nvsw0:down1"),
    ("switch", 2, "nvls_tree", (7, 2), "nvsw1:down0 > srv1:nv0"),
    ("two_tier_switch", 2, "nvls_tree", (1, 6), "srv0:nv1 > nvleaf0:down1"),
    ("switch", 2, "collnet_direct", (3, 7), "srv1:rail1 > leaf1:down1"),
    ("switch", 2, "collnet_chain", (6, 4), "leaf0:down2 > srv2:rail0"),
    ("none", 1, "collnet_direct", (3, 2), "leaf0:down2 > srv2:rail0"),
])
def test_a_transfer_goes_by_the_ports_of_its_gpus_and_a_switch_that_adds_is_at_their_other_end(kind, gpus, name, between, way):
    got = found(name, 3 * gpus, cluster(kind, gpus))
    assert got[between] == way, f"{name} {between}: {got[between]}"


@pytest.mark.parametrize(("make", "complaint"), [
    (lambda: found("ring", 6, cluster("none")), "the cluster has none; want one with_scale_up"),
    (lambda: found("nvls_tree", 6, cluster("full_mesh")), "scale_up=full_mesh has no switch; want switch or two_tier_switch"),
    (lambda: found("collnet_direct", 6, cluster(leaf_down=2)), "sharp0 would be leaf0 and leaf2; want its GPUs' ports at one"),
    (lambda: ways(scale_out_only(schedule("ring", Placement(6, 2), 4096)), *cluster()), "want the whole schedule"),
])
def test_what_does_not_fit_is_refused_in_one_line_with_what_would(make, complaint):
    with pytest.raises(RailbedError) as refusal:
        make()
    assert complaint in str(refusal.value) and "\n" not in str(refusal.value), refusal.value
    assert refusal.value.exit_code == 2
