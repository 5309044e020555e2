"""Promises about other tools' files: read as those tools read them, or refused in one line with file, line and what is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.workload.event import sent_per_rank
from emu.workload.htsim_matrix import Flow, read_connection_matrix
from emu.workload.htsim_topology import read_topology
from emu.workload.nccl_topology import read_nccl_topology
from emu.workload.simai import read_simai, simai_events
from emu.workload.timeline import end_ns, timeline

FIXTURES = Path(__file__).parent / "fixtures"
REAL_FILES = Path(__file__).parents[2] / "../shared/data"
QUEUE = QueueProfile(buffer_bytes=1_000_000, ecn=EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.1))
READERS = {
    "simai_small.txt": lambda path: simai_events(read_simai(path)),
    "htsim_small.cm": read_connection_matrix,
    "htsim_small.topo": lambda path: read_topology(path, QUEUE),
    "nccl_small.xml": lambda path: read_nccl_topology(path).rails(),
}


def real(name: str) -> str:
    path = REAL_FILES / name
    if not path.exists():
        pytest.skip(f"the published file is not here: {path.name}")
    return str(path)


def refusal(name: str, tmp_path: Path, *changes: tuple[str, str]) -> str:
    """What the reader says about its fixture with some text replaced, without the directory."""
    text = (FIXTURES / name).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {name}"
        text = text.replace(old, new)
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        READERS[name](str(path))
    message = str(refused.value)
    assert message.startswith(str(path)) and "want" in message and "\n" not in message, message
    return message.removeprefix(f"{tmp_path}/")


def test_a_simai_workload_is_read_with_its_groups():
    workload = read_simai(str(FIXTURES / "simai_small.txt"))
    assert (workload.tp, workload.ep, workload.pp, workload.dp, workload.gpus) == (2, 2, 2, 4, 16)
    assert {name: workload.group(name) for name in ("tp", "ep", "dp", "dp_ep")} == {
        "tp": (0, 1), "ep": (0, 2), "dp": (0, 2, 4, 6), "dp_ep": (0, 4)
    }
    assert workload.pp_sent_bytes == 2 * 1 * 3 * 4096
    experts = workload.layers[1]
    assert experts.forward == (900, "all_to_all", "ep", 2048) and experts.weight_gradient == (1, "all_reduce", "dp_ep", 6000)
    assert workload.layers[0].forward.group == "tp" and workload.layers[2].weight_gradient.group == "dp"


def test_a_simai_workload_goes_forward_then_backward_with_gradients_beside():
    events = simai_events(read_simai(str(FIXTURES / "simai_small.txt")))
    assert [(event.name, event.kind, event.after) for event in events] == [
        ("embedding forward", "compute", ()),
        ("embedding forward all_reduce", "tp", (0,)),
        ("experts forward", "compute", (1,)),
        ("experts forward all_to_all", "ep", (2,)),
        ("grads weight gradient", "compute", (3,)),
        ("grads weight gradient reduce_scatter", "dp", (4,)),
        ("experts input gradient", "compute", (4,)),
        ("experts input gradient all_to_all", "ep", (6,)),
        ("experts weight gradient", "compute", (7,)),
        ("experts weight gradient all_reduce", "dp", (5, 8)),
        ("embedding input gradient", "compute", (8,)),
        ("embedding weight gradient", "compute", (10,)),
    ]
    assert sent_per_rank(events) == {"tp": 8192, "ep": 1024 + 512, "dp": 3000 + 6000, "pp": 0}
    assert end_ns(timeline(events, lambda event: event.duration_ns)) == 500 + 900 + 2 + 800 + 1 + 1 + 700


def test_simais_published_9216_gpu_workload_has_the_bytes_that_its_shapes_give():
    workload = read_simai(real("simai/workload_analytical.txt"))
    assert (workload.tp, workload.ep, workload.pp, workload.dp, workload.ga, workload.gpus) == (2, 16, 12, 384, 24, 9216)
    sizes = {(layer.name, layer.forward.collective): layer.forward.size_bytes for layer in workload.layers}
    assert sizes["attention_column", "all_gather"] == workload.pp_comm_bytes == 4096 * 6144 * 2
    gradients = {layer.name: layer.weight_gradient.size_bytes for layer in workload.layers}
    assert gradients["grad_param_comm"] == 2 * gradients["grad_gather"] == 5_615_517_696, "FP32 gradients, BF16 parameters"
    assert gradients["moe_grad_norm2"] == 2 * gradients["moe_grad_norm1"] == 38_654_705_664
    layers = Counter(layer.name for layer in workload.layers)
    assert layers["attention_column"] == 24 * 96 // 12, "8 of 96 layers for each of 24 micro-batches"
    assert workload.pp_sent_bytes == 2 * 8 * 24 * 50_331_648
    sent = sent_per_rank(simai_events(workload))
    assert sent["dp"] == (2_807_758_848 + 5_615_517_696) * 383 // 384 + (19_327_352_832 + 38_654_705_664) * 23 // 24
    assert sent["ep"] == 2 * 384 * 100_663_296 * 15 // 16


def test_simais_published_allreduce_benchmark_is_16_and_64_mib_over_8_gpus():
    events = simai_events(read_simai(real("simai/microAllReduce.txt")))
    calls = [event for event in events if event.collective]
    assert [(event.collective, event.size_bytes, len(event.ranks)) for event in calls] == [
        ("all_reduce", 16 << 20, 8), ("all_reduce", 64 << 20, 8)
    ]


@pytest.mark.parametrize(("old", "new", "words"), [
    ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "MICRO", ":1: parallelization policy 'MICRO'"),
    ("all_gpus: 16 ", "", ":1: no all_gpus"),
    ("all_gpus: 16", "all_gpus: 16000000", ":1: all_gpus 16000000; want at most"),
    ("all_gpus: 16", "all_gpus: 18", ":1: all_gpus 18 is no multiple of tp 2 x pp 2"),
    (" ep: 2", " ep: 3", ":1: ep 3 does not divide the 4 "),
    ("pp_comm 4096", "", ":1: pp 2 with pp_comm 0"),
    ("ga: 3", "ga: three", ":1: ga is 'three'"),
    ("ga: 3", "ga: 3 ga: 3", ":1: ga for the second time"),
    ("checkpoints: 0", "checkpoints: 1", ":1: checkpoints 1"),
    ("vpp: 1", "vpp: 1 cp: 2", ":1: unknown size 'cp:'"),
    ("\n3\n", "\n4\n", ":2: 4 layers announced but 3 follow"),
    ("\n3\n", "\nmany\n", ":2: the number of layers is 'many'"),
    ("\t700\tNONE", "\tNONE", ":3: 11 columns; want 12"),
    ("embedding\t-1", "embedding\t0", ":3: dependency '0'"),
    ("ALLREDUCE\t8192", "ALLREDUC\t8192", ":3: forward: unknown collective 'ALLREDUC'"),
    ("ALLREDUCE\t8192", "ALLREDUCE\t-1", ":3: forward's bytes is '-1'"),
    ("800\tALLTOALL_EP\t1024", "800\tNONE\t1024", ":4: input gradient: NONE with 1024 bytes"),
    ("800\tALLTOALL_EP", "0.5\tALLTOALL_EP", ":4: input gradient's compute time is '0.5'"),
])
def test_a_wrong_simai_workload_is_refused(tmp_path, old, new, words):
    assert f"simai_small.txt{words}" in refusal("simai_small.txt", tmp_path, (old, new))


def test_a_connection_matrix_is_read_with_what_each_flow_waits_for():
    assert read_connection_matrix(str(FIXTURES / "htsim_small.cm")).flows == (
        Flow(0, 1, 1000, 0, ()),
        Flow(1, 2, 2000, 0, (0,)),
        Flow(2, 3, 3000, 0, (0, 1)),
        Flow(3, 0, 3000, 0, (0, 1)),
        Flow(0, 2, 10, 5_000_000, ()),
        Flow(0, 3, 20, 0, (4,)),
        Flow(0, 1, 30, 0, (5,)),
    )


def test_a_flow_listed_before_the_one_it_waits_for_is_moved_behind_it(tmp_path):
    path = tmp_path / "backwards.cm"
    path.write_text("Nodes 3\nConnections 3\nTriggers 1\n1->2 id 1 trigger 9 size 7\n2->0 start 0 size 5\n"
                    "0->1 id 2 start 0 size 8 recv_done_trigger 9\ntrigger id 9 oneshot\n")
    assert read_connection_matrix(str(path)).flows == (Flow(2, 0, 5, 0, ()), Flow(0, 1, 8, 0, ()), Flow(1, 2, 7, 0, (1,)))


def test_htsims_published_matrices_are_an_incast_and_a_permutation():
    incast = read_connection_matrix(real("htsim/incast.cm"))
    assert incast.nodes == 16 and set(incast.flows) == {Flow(source, 15, 2_000_000, 0, ()) for source in range(15)}
    permutation = read_connection_matrix(real("htsim/perm_32n_32c_2MB.cm")).flows
    assert {flow.source for flow in permutation} == {flow.target for flow in permutation} == set(range(32))
    assert len(permutation) == 32 and {flow.size_bytes for flow in permutation} == {2_000_000}


@pytest.mark.parametrize(("old", "new", "words"), [
    ("Nodes 4", "Nodes 3", ":8: 2->3 with Nodes 3"),
    ("Nodes 4\n", "", ":5: a connection before the line `Nodes`"),
    ("Nodes 4", "Nodes four", ":2: Nodes is 'four'"),
    ("Nodes 4", "Nodes 4 5", ":2: Nodes has 2 values"),
    ("Connections 7", "Connections 8", ":3: Connections 8, but there are 7"),
    ("Triggers 3\n", "", ": Triggers 0, but there are 3"),
    ("Triggers 3", "Triggers 3\nFailures 1", ":5: Failures 1"),
    ("Triggers 3", "Triggers 3\nNodes 4", ":5: Nodes for the second time"),
    ("Triggers 3", "Triggers 3\nfailure switch_type TOR", ":5: unknown line 'failure'"),
    ("2->3 id 3", "2->2 id 3", ":8: 2->2 with Nodes 4"),
    ("2->3 id 3", "2->x id 3", ":8: '2->x' is no connection"),
    ("0->1 id 1 start 0 size 1000", "0->1 id 1 start 0", ":6: 0->1 has no size"),
    ("0->1 id 1 start 0 size 1000", "0->1 id 1 start 0.5 size 1000", ":6: start is '0.5'"),
    ("0->1 id 1 start 0", "0->1 id 1", ":6: 0->1 has neither start nor trigger"),
    ("2->3 id 3", "2->3 id 3 start 0", ":8: 2->3 has both start and trigger"),
    ("2->3 id 3", "2->3 id 3 prio 1", ":8: unknown or unsupported attribute 'prio'"),
    ("2->3 id 3", "2->3 id 3 id 3", ":8: id for the second time"),
    ("2->3 id 3", "2->3 id", ":8: id is 'trigger'"),
    ("trigger id 1 oneshot", "trigger id 4 oneshot", ":6: trigger 1 is not in the file"),
    ("trigger id 1 oneshot", "trigger id 1", ":13: this trigger lacks its id or its kind; want `id` and a number, and one"),
    ("trigger id 1 oneshot", "trigger id 2 oneshot", ":14: trigger 2 for the second time"),
    ("count 2", "count 3", ":14: barrier 2 has count 3 but 2 flows fire it"),
    ("barrier count 2", "oneshot", ":14: oneshot 2 is fired by 2 flows"),
    ("size 20 send_done_trigger 3", "size 20", ":15: multishot 3 is fired by 1 flows but 2 wait"),
    ("size 1000 send_done_trigger 1", "size 1000", ":13: oneshot 1 is fired by no flow"),
])
def test_a_wrong_connection_matrix_is_refused(tmp_path, old, new, words):
    assert f"htsim_small.cm{words}" in refusal("htsim_small.cm", tmp_path, (old, new))


def test_a_flow_that_waits_for_itself_is_refused(tmp_path):
    changes = (("0->1 id 1 start 0", "0->1 id 1 trigger 2"), ("count 2", "count 2\n#"))
    assert "htsim_small.cm:6: this flow waits for itself" in refusal("htsim_small.cm", tmp_path, *changes)


def test_a_two_tier_topology_file_is_a_spine_leaf_that_can_be_planned():
    topology = read_topology(str(FIXTURES / "htsim_small.topo"), QUEUE)
    assert [switch.name for switch in topology.switches] == ["leaf0", "leaf1", "leaf2", "spine0", "spine1"]
    assert topology.gpus == len(topology.servers) == 12 and topology.queue == QUEUE
    links = Counter((link.a.node, link.b.node) for link in topology.links)
    assert all(links[f"srv{node}", f"leaf{node // 4}"] == 1 for node in range(12))
    assert all(links[f"leaf{leaf}", f"spine{spine}"] == 2 for leaf in range(3) for spine in range(2)) and links.total() == 24
    assert Counter((link.rate_bps, link.delay_ns) for link in topology.links) == {(10**11, 500): 12, (10**11, 900): 12}
    assert len(make_plan(topology, seed=1).nodes) == 12 + 5


def test_uplinks_have_the_speed_of_the_spines_tier(tmp_path):
    path = tmp_path / "fast.topo"
    text = (FIXTURES / "htsim_small.topo").read_text()
    path.write_text(text.replace("Gbps 100\nRadix_Down 6", "Gbps 200\nRadix_Down 6").replace("Radix_Up 4", "Radix_Up 2")
                    .replace("Bundle 2", "Bundle 1").replace("Radix_Down 6", "Radix_Down 3"))
    rates = Counter((link.a.node[:3], link.rate_bps) for link in read_topology(str(path), QUEUE).links)
    assert rates == {("srv", 10**11): 12, ("lea", 2 * 10**11): 6}


def test_queue_sizes_of_the_file_are_the_buffers(tmp_path):
    path = tmp_path / "queues.topo"
    path.write_text((FIXTURES / "htsim_small.topo").read_text() + "Queue_Down 500000\n")
    assert read_topology(str(path), QUEUE).queue == QueueProfile(buffer_bytes=500_000, ecn=QUEUE.ecn)


def test_htsims_published_leaf_spine_is_4_leaves_of_8_and_2_spines():
    topology = read_topology(real("htsim/leaf_spine_tiny.topo"), QUEUE)
    assert (len(topology.servers), len(topology.switches_of("leaf")), len(topology.switches_of("spine"))) == (32, 4, 2)
    assert len(topology.links) == 32 + 8 and {link.rate_bps for link in topology.links} == {10**11}
    assert {link.delay_ns for link in topology.links} == {1000}


@pytest.mark.parametrize(("old", "new", "words"), [
    ("Nodes 12\n", "", ": the header lacks nodes"),
    ("Nodes 12", "Nodes 12 nodes", ":2: Nodes has 2 values"),
    ("Nodes 12", "Nodes -12", ":2: Nodes is '-12'"),
    ("Nodes 12", "Nodes 12\nNODES 12", ":3: NODES for the second time in the header"),
    ("Nodes 12\nTiers 2\nPodsize 12", "Nodes 1200000\nTiers 2\nPodsize 1200000", ":2: Nodes 1200000 need 2400000 links"),
    ("Tiers 2", "Tiers 3", ":3: Tiers 3 is no spine-leaf"),
    ("Podsize 12", "Podsize 6", ":4: Podsize 6 with Nodes 12"),
    ("Podsize 12", "Podsiz 12", ":4: unknown key 'Podsiz' in the header"),
    ("Tier 1", "Tier 0", ":13: Tier 0 for the second time"),
    ("Tier 1", "Tier 2", ": Tiers 2 but there are 2 sections; want Tier 0 and Tier 1"),
    ("Tier 1", "Tier x", ":13: Tier is 'x'"),
    ("Radix_Down 4", "Radix_Down 5", ":8: Radix_Down 5 does not divide Nodes 12"),
    ("Radix_Down 4\n", "", ":6: tier 0 lacks radix_down"),
    ("Radix_Down 6", "Radix_Down 5", ":15: Radix_Down 5 but 3 leaves with 2 links each; want 6"),
    ("Bundle 2", "Bundle 3", ":16: Bundle 3 does not divide the leaf's Radix_Up 4"),
    ("Bundle 2", "Bundle 2\nRadix_Up 1", ":17: Radix_Up in tier 1"),
    ("Radix_Up 4", "Radix_Up 4\nBundle 2", ":10: Bundle 2 at the leaf"),
    ("Oversubscribed 1", "Oversubscribed 2", ":11: Oversubscribed 2 but 4 x 100 Gb/s down and 4 x 100 Gb/s up"),
    ("Oversubscribed 1", "Switch_Latency_ns 300", ":11: our switches add no latency"),
    ("Oversubscribed 1", "Queue_Up 500000\nQueue_Down 600000", ":12: ports with different queues"),
    ("Oversubscribed 1", "Queue_Up 300000", ":11: buffer_bytes=300000 ends before kmax_bytes=400000"),
    ("Bundle 2", "Downlink_Speed_Gbps 100", ":16: Downlink_Speed_Gbps for the second time in tier 1"),
])
def test_a_wrong_topology_file_is_refused(tmp_path, old, new, words):
    assert f"htsim_small.topo{words}" in refusal("htsim_small.topo", tmp_path, (old, new))


def test_links_faster_than_any_of_ours_are_refused_with_the_file(tmp_path):
    changes = (("Downlink_speed_Gbps 100\nRadix_Down 4", "Downlink_speed_Gbps 1700\nRadix_Down 4"),
               ("Downlink_speed_Gbps 100\nRadix_Down 6", "Downlink_speed_Gbps 1700\nRadix_Down 6"))
    assert "rate 1700 Gb/s; want 1 to 1600 Gb/s" in refusal("htsim_small.topo", tmp_path, *changes)


def test_a_gpus_nic_is_the_one_on_its_pcie_switch_by_the_files_numbers():
    server = read_nccl_topology(str(FIXTURES / "nccl_small.xml"))
    assert server.rails() == server.nic_of == (1, 0)
    assert [gpu.bus_id for gpu in server.gpus] == ["0000:12:00.0", "0000:91:00.0"]
    assert [nic.bus_id for nic in server.nics] == ["0000:92:00.0", "0000:11:00.0"]


@pytest.mark.parametrize(("gpus", "nics", "nic_of"), [
    (1, 1, (0,)), (2, 2, (0, 1)), (4, 4, (0, 2, 1, 3)), (3, 3, (0, 1, 2)), (4, 2, (0, 1, 0, 1)), (2, 4, (0, 2)),
])
def test_gpus_that_share_nics_take_them_in_nccls_order(tmp_path, gpus, nics, nic_of):
    """ncclTopoGetLocalNet, channel 0; devices without dev are numbered by their address."""
    devices = [f'<pci busid="0000:0{9 - number}:00.0" class="0x030200"/>' for number in range(gpus)]
    devices += [f'<pci busid="0000:1{number}:00.0" class="0x020700"/>' for number in range(nics)]
    path = tmp_path / "shared.xml"
    path.write_text(f'<system><cpu><pci busid="0000:00:00.0" class="0x060400">{"".join(devices)}</pci></cpu></system>')
    server = read_nccl_topology(str(path))
    assert server.nic_of == nic_of
    if gpus == nics:
        assert server.rails() == nic_of
    else:
        with pytest.raises(UsageError, match=f"{gpus} GPUs use .* of {nics} NICs.*want one NIC a GPU"):
            server.rails()


def test_gpus_of_a_second_switch_are_counted_from_its_own(tmp_path):
    """3 GPUs share 2 NICs under each of two switches: GPU 3 is the first of its three, as GPU 0 is."""
    switches = ""
    for switch in (1, 2):
        devices = "".join(f'<pci busid="0:{switch}{number}:0.0" class="0x030200"/>' for number in (1, 2, 3))
        devices += "".join(f'<pci busid="0:{switch}{number}:0.0" class="0x020000"/>' for number in (4, 5))
        switches += f'<pci busid="0:{switch}0:0.0" class="0x060400">{devices}</pci>'
    path = tmp_path / "two.xml"
    path.write_text(f"<system><cpu>{switches}</cpu></system>")
    assert read_nccl_topology(str(path)).nic_of == (0, 1, 0, 2, 3, 2)


def test_azures_published_ndv4_server_has_rail_k_at_gpu_k():
    server = read_nccl_topology(real("nccl-topo/azure-ndv4-topo.xml"))
    assert server.rails() == tuple(range(8))
    assert (server.gpus[0].bus_id, server.nics[0].bus_id) == ("0001:00:00.0", "0101:00:00.0")
    assert (server.gpus[7].bus_id, server.nics[7].bus_id) == ("000e:00:00.0", "0108:00:00.0")


@pytest.mark.parametrize(("old", "new", "words"), [
    ('<system version="1">', '<graph version="1">', ":2: the root is 'graph'"),
    ("</system>", "", ":16: no XML (no element found)"),
    ('<pci busid="0000:12:00.0" class="0x030200">', '<pci class="0x030200">', ":5: pci without busid"),
    ('busid="0000:12:00.0" class="0x030200"', 'busid="0000:12:00.0"', ":5: pci without class"),
    ("0000:12:00.0", "0000:12", ":5: busid '0000:12'"),
    ("0000:91:00.0", "0000:12:00.0", ":11: busid 0000:12:00.0 as in line 5"),
    ('<gpu dev="1"', '<gpu dev="2"', ":5: 2 of 2 GPUs have a dev; want 0 to 1, each once"),
    ('<gpu dev="1"', "<gpu", ":5: 1 of 2 GPUs have a dev"),
    ('<gpu dev="1"', '<gpu dev="one"', ":11: dev is 'one'"),
    ('<gpu dev="1"', '<net dev="1"', ":11: dev outside a NIC's pci element"),
    ('<gpu dev="1" sm="90"/>', '<gpu dev="1"/><gpu dev="2"/>', ":11: a second dev for 0000:91:00.0"),
    ('<?xml version="1.0"?>', '<!DOCTYPE system [<!ENTITY a "b">]>', ":1: a document type"),
    ('version="1"', "version=1", ":2: no XML (not well-formed (invalid token))"),
])
def test_a_wrong_nccl_topology_is_refused(tmp_path, old, new, words):
    assert f"nccl_small.xml{words}" in refusal("nccl_small.xml", tmp_path, (old, new))


def test_a_server_without_nics_is_refused(tmp_path):
    path = tmp_path / "none.xml"
    path.write_text('<system><cpu><pci busid="0:1:0.0" class="0x030200"/></cpu></system>')
    with pytest.raises(UsageError, match="none.xml: no NIC; want pci elements"):
        read_nccl_topology(str(path))


@pytest.mark.parametrize("name", READERS)
def test_a_missing_file_and_a_directory_are_refused(name, tmp_path):
    for path in (tmp_path / name, tmp_path):
        with pytest.raises(UsageError, match=f"{path}: .*; want an? "):
            READERS[name](str(path))
    with pytest.raises(UsageError, match=r"'a\\x00b' is no path .*; want an? "):
        READERS[name]("a\0b")


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_read_or_refused_in_one_line(name, data, tmp_path):
    """Bytes cut out of a good file, put in, or doubled: never an exception but UsageError."""
    good = (FIXTURES / name).read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 40)))
    new = data.draw(st.one_of(st.binary(max_size=8), st.text("0123456789-> .\n\t:<>\"'&", max_size=6).map(str.encode),
                              st.just(good[start:end] * 2), st.just("٣\u2028\x85".encode()), st.just(b"9" * 5000)))
    check_read_or_refused(name, good[:start] + new + good[end:], tmp_path)


@pytest.mark.parametrize("name", READERS)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: text.encode(errors="replace"))))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_is_refused_in_one_line(name, content, tmp_path):
    check_read_or_refused(name, content, tmp_path, garbage=True)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_of_a_file_in_other_places_are_read_or_refused_in_one_line(name, data, tmp_path):
    """A word of the file in place of another: numbers, keys and names that exist, where they don't belong."""
    words = (FIXTURES / name).read_text().split(" ")
    at, source = (data.draw(st.integers(0, len(words) - 1)) for _ in range(2))
    words[at] = words[source]
    check_read_or_refused(name, " ".join(words).encode(), tmp_path)


def check_read_or_refused(name: str, content: bytes, tmp_path: Path, *, garbage: bool = False) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    try:
        READERS[name](str(path))
    except UsageError as error:
        message = str(error)
        assert message.startswith(str(path)) and "want" in message and message.isprintable(), message
    else:
        assert not garbage, content
