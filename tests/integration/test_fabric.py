"""Promises about the live fabric: packets cross it as planned, and the kernel keeps every knob as asked."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from emu.errors import FabricError, MissingFeature
from emu.fabric import build, netns
from emu.fabric.fabric import Fabric
from emu.fabric.probe import probe
from emu.measure import conservation
from emu.measure.counters import difference, snapshot
from emu.scale import Scale
from emu.topology.model import Port, nic
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

pytestmark = pytest.mark.needs_root

REPOSITORY = Path(__file__).parents[2]
ROCE_PORT = 4791
FLOWS = 64
SPINES = 4
PACKETS_A_FLOW = 3
TIMEOUT_S = 60
OFFLOADS = (
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "tx-udp-segmentation",
    "tx-gso-list",
)


def fabric_of(seed: int = 1, dilation: int = 100, **changes) -> Fabric:
    """4 servers of 2 GPUs in two groups under 4 leaves and 4 spines, 1:2; no marking unless asked for."""
    shape = {
        "servers": 4,
        "gpus_per_server": 2,
        "wiring": "rail",
        "leaf_down": 2,
        "leaf_up": SPINES,
        "rate_bps": gbps(400),
        "queue": QueueProfile(buffer_bytes=mib(16)),
    }
    plan = make_plan(SpineLeaf(**shape | changes).topology(), seed)
    return Fabric(plan, Scale(dilation=dilation, catch_up_ns=100_000))


def one_leaf(**changes) -> Fabric:
    return fabric_of(**{"servers": 2, "gpus_per_server": 1, "leaf_up": 0} | changes)


@pytest.fixture(scope="module")
def fabric():
    """One for all tests that only look."""
    with fabric_of() as built:
        yield built


def said(fabric: Fabric, node: str, *command: str) -> str:
    """What a program prints inside a node's namespace."""
    inside = ["ip", "netns", "exec", netns.name_of(fabric.run_id, node), *command]
    done = subprocess.run(inside, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{node}: {' '.join(command)}: {done.stderr}"
    return done.stdout


def shown(fabric: Fabric, node: str, *command: str) -> list[dict]:
    """What ip or tc print as JSON inside a node's namespace."""
    return json.loads(said(fabric, node, *command))


def uplink_picks(fabric: Fabric, source: Port, target: Port) -> list[str]:
    """The uplink that the kernel's FIB at the source's leaf picks for each UDP source port, by `ip route get`."""
    leaf = fabric.ports[source].peer
    questions = "".join(
        f"route get {fabric.ports[target].address} from {fabric.ports[source].address} iif {leaf.ifname} "
        f"ipproto udp sport {49152 + k} dport {ROCE_PORT}\n"
        for k in range(FLOWS)
    )
    done = subprocess.run(
        ["ip", "-n", netns.name_of(fabric.run_id, leaf.node), "-batch", "-"],
        input=questions,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    picks = [words[i + 1] for i, word in enumerate(words) if word == "dev"]
    assert len(picks) == FLOWS, done.stdout
    return picks


def send_udp(fabric: Fabric, source: Port, target: Port) -> None:
    """PACKETS_A_FLOW datagrams from each of FLOWS source ports."""
    with netns.inside(netns.name_of(fabric.run_id, source.node)):
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
    for k, sender in enumerate(sockets):
        with sender:
            sender.bind((fabric.ports[source].address, 49152 + k))
            for _ in range(PACKETS_A_FLOW):
                sender.sendto(b"x", (fabric.ports[target].address, ROCE_PORT))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (nic(0, 0), nic(1, 0)),
        (nic(0, 1), nic(1, 1)),  # same rail, same group: under one leaf
        (nic(0, 0), nic(1, 1)),
        (nic(1, 1), nic(0, 0)),  # across rails, over a spine
        (nic(0, 0), nic(3, 0)),
        (nic(3, 1), nic(0, 0)),  # to another group
    ],
    ids=lambda port: str(port).replace(":", "."),
)
@pytest.mark.parametrize("by", ["address", "interface"])
def test_ping_leaves_by_the_nic_it_is_told_and_is_answered_at_the_nic_it_asks(fabric, source, target, by):
    interface = fabric.ports[source].address if by == "address" else source.ifname
    before = snapshot(fabric)
    answer = fabric.get(source.node).cmd(f"ping -c 2 -i 0.01 -W 2 -I {interface} {fabric.ports[target].address}")
    delta = difference(before, snapshot(fabric))
    assert " 2 received" in answer, answer
    sent = {str(port): c.sent_packets for port, c in delta.items() if c.sent_packets and port.node.startswith("srv")}
    assert sent == {str(source): 2, str(target): 2}
    assert all(check.ok for check in conservation.checks(fabric.plan, delta)), conservation.checks(fabric.plan, delta)


def test_iperf3_between_two_servers_reaches_the_emulated_rate_and_not_more(fabric):
    """1 s over a 4 Gb/s link (400 Gb/s at D = 100): TCP with offloads off on a shared machine; a tenth must arrive."""
    target = fabric.ports[nic(1, 0)].address
    server = fabric.get("srv1").popen("iperf3 -s -1 --forceflush", stdout=subprocess.PIPE, text=True)
    try:
        while "listening" not in (line := server.stdout.readline()):
            assert line, "iperf3 -s ended before it listened"
        report = json.loads(fabric.get("srv0").cmd(f"iperf3 -J -t 1 -c {target}"))
        assert server.wait(TIMEOUT_S) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    received_bps = report["end"]["sum_received"]["bits_per_second"]
    assert 0.4e9 < received_bps < 4.1e9, f"received {received_bps / 1e9:.3f} Gb/s over a link of 4 Gb/s"


def test_every_offload_is_off_and_every_port_has_one_queue(fabric):
    for node in ("srv0", "leaf0", "spine0"):
        for port in (p for p in fabric.ports if p.node == node):
            lines = said(fabric, node, "ethtool", "-k", port.ifname).splitlines()[1:]
            features = dict(line.strip().split(": ", 1) for line in lines)
            on = [name for name in OFFLOADS if features.get(name, "off").startswith("on")]
            assert "tx-checksumming" in features and not on, f"{port}: {on}"
            link = shown(fabric, node, "ip", "-d", "-j", "link", "show", port.ifname)[0]
            rx_queues = link.get("num_rx_queues", 1)  # a kernel for one CPU does not say
            assert (link["num_tx_queues"], rx_queues, link["mtu"]) == (1, 1, 4096 + 64), f"{port}: {link}"


def test_tc_shows_the_rate_and_buffer_that_were_asked(fabric):
    """`tc -j` gives the rate in bytes/s."""
    for node, limit_bytes in (("leaf0", mib(16)), ("srv0", 64 << 20)):
        qdiscs = [q for q in shown(fabric, node, "tc", "-j", "qdisc", "show") if q["kind"] == "tbf"]
        assert len(qdiscs) == sum(port.node == node for port in fabric.ports)
        for qdisc in qdiscs:
            options = qdisc["options"]
            assert (options["rate"], options.get("limit", limit_bytes)) == (gbps(4) // 8, limit_bytes), (
                f"{node}: {qdisc}"
            )


@pytest.mark.parametrize("rate_gbps", [1, 34, 35, 400, 1600])
def test_any_rate_up_to_1600_gbps_is_kept_to_the_byte_without_dilation(rate_gbps):
    with one_leaf(rate_bps=gbps(rate_gbps), dilation=1) as fabric:
        rates = {
            q["options"]["rate"] for q in shown(fabric, "leaf0", "tc", "-j", "qdisc", "show") if q["kind"] == "tbf"
        }
    assert rates == {gbps(rate_gbps) // 8}


@pytest.mark.needs_red
def test_red_is_asked_for_instantaneous_ecn_marking():
    ecn = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.1)
    with one_leaf(queue=QueueProfile(buffer_bytes=mib(1), ecn=ecn)) as fabric:
        assert fabric.marker == "red"
        red = [q["options"] for q in shown(fabric, "leaf0", "tc", "-j", "-d", "qdisc", "show") if q["kind"] == "red"]
    assert len(red) == 2
    assert all(
        (o["min"], o["max"], o["limit"], o["ecn"], o.get("ewma", 0)) == (100_000, 400_000, mib(1), True, 0) for o in red
    )


@pytest.mark.needs_bpf_marker
def test_the_bpf_marker_is_on_every_switch_port_and_on_no_nic(monkeypatch):
    monkeypatch.setattr("emu.fabric.fabric.choose_marker", lambda _plan: "bpf")
    ecn = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.1)
    with one_leaf(queue=QueueProfile(buffer_bytes=mib(1), ecn=ecn)) as fabric:
        assert fabric.marker == "bpf"
        filters = {
            port: shown(fabric, port.node, "tc", "-j", "filter", "show", "dev", port.ifname, "egress")
            for port in fabric.ports
        }
    attached = {str(port) for port, found in filters.items() if any("options" in one for one in found)}
    assert attached == {"leaf0:down0", "leaf0:down1"}


def test_a_delay_is_a_missing_feature_where_the_kernel_has_no_netem():
    if probe().works("sch_netem"):
        with one_leaf(delay_ns=500) as fabric:
            netem = [q for q in shown(fabric, "srv0", "tc", "-j", "qdisc", "show") if q["kind"] == "netem"]
        assert netem[0]["options"]["delay"]["delay"] == pytest.approx(
            50e-6, abs=1.1e-6
        )  # tc cuts to whole microseconds
        return
    with pytest.raises(
        MissingFeature, match="srv0:rail0 - leaf0:down0 has delay_ns=500.* no sch_netem .*--clock virtual"
    ):
        one_leaf(delay_ns=500)


def test_flows_that_differ_in_the_udp_source_port_spread_over_all_spines(fabric):
    picks = Counter(uplink_picks(fabric, nic(0, 0), nic(2, 0)))
    assert set(picks) == {f"up{k}" for k in range(SPINES)}, picks


def test_packets_take_the_uplinks_that_the_fib_names(fabric):
    source, target = nic(0, 0), nic(2, 0)
    want = {f"leaf0:{up}": PACKETS_A_FLOW * n for up, n in Counter(uplink_picks(fabric, source, target)).items()}
    before = snapshot(fabric)
    send_udp(fabric, source, target)
    delta = difference(before, snapshot(fabric))
    got = {
        str(port): c.sent_packets for port, c in delta.items() if port.node == "leaf0" and port.ifname.startswith("up")
    }
    assert got == want
    assert delta[target].received_packets == FLOWS * PACKETS_A_FLOW


@pytest.mark.needs_hash_seed
def test_a_seed_gives_the_same_picks_in_every_build_and_another_seed_gives_others(fabric):
    first = uplink_picks(fabric, nic(0, 0), nic(2, 0))
    with fabric_of(seed=1) as again:
        second = uplink_picks(again, nic(0, 0), nic(2, 0))
    with fabric_of(seed=2) as other:
        third = uplink_picks(other, nic(0, 0), nic(2, 0))
    assert first == second
    same = sum(a == b for a, b in zip(first, third, strict=True))
    assert same < FLOWS / 2, (
        f"{same} of {FLOWS} flows take the same uplink with another seed; chance gives {FLOWS / SPINES:.0f}"
    )


@pytest.mark.needs_hash_seed
def test_two_leaves_hash_the_same_flow_independently(fabric):
    """One secret for all switches would be perfect polarization: every tier picks alike."""
    one, two = uplink_picks(fabric, nic(0, 0), nic(2, 0)), uplink_picks(fabric, nic(2, 0), nic(0, 0))
    same = sum(a == b for a, b in zip(one, two, strict=True))
    assert same < FLOWS / 2, f"{same} of {FLOWS} flows take the same uplink number at both leaves"


def test_a_nics_rate_limit_is_kept_and_read_back():
    with one_leaf() as fabric:
        fabric.limit_nic(nic(0, 0), gbps(40))
        rates = [q["options"]["rate"] for q in shown(fabric, "srv0", "tc", "-j", "qdisc", "show") if q["kind"] == "tbf"]
    assert rates == [gbps(40) // 8 // 100]


def other_setting(**changes):
    install = build.queue.install
    return "queue.install", lambda batch, queue, what: install(batch, dataclasses.replace(queue, **changes), what)


def other_mtu():
    create = build.link.create_pair
    return "link.create_pair", lambda batch, a, b, peer, mtu: create(batch, a, b, peer, mtu - 4)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda: other_setting(rate_bytes=499_999_999), "rate asked 500000000, kernel keeps 499999999"),
        (lambda: other_setting(limit_bytes=12_345), "limit asked"),
        (lambda: other_setting(burst_bytes=9000), "buffer asked"),
        (lambda: ("queue.install", lambda *_: None), "qdisc 1: is not there"),
        (other_mtu, "mtu asked 4160, kernel keeps 4156"),
        (lambda: ("routes.route", lambda *_: None), "via rail0, kernel has none"),
    ],
    ids=["rate", "limit", "burst", "no queue", "MTU", "no route"],
)
def test_a_knob_that_the_kernel_keeps_otherwise_than_planned_stops_the_build(monkeypatch, fault, words):
    where, wrong = fault()
    monkeypatch.setattr(f"emu.fabric.build.{where}", wrong)
    fabric = one_leaf(servers=2, leaf_up=1)
    with pytest.raises(FabricError) as refused, fabric:
        pass
    assert words in str(refused.value) and "\n" not in str(refused.value), refused.value
    assert netns.of_run(fabric.run_id) == []


def test_what_was_read_back_is_counted(fabric):
    want = 2 * len(fabric.ports) + sum(len(node.routes) for node in fabric.plan.nodes)
    assert fabric.knobs_compared == want


def test_mininets_own_api_finds_nodes_links_and_addresses(fabric):
    assert [host.name for host in fabric.hosts] == ["srv0", "srv1", "srv2", "srv3"]
    assert len(fabric.switches) == 4 + SPINES
    assert fabric.get("srv2").IP() == fabric.ports[nic(2, 0)].address
    assert len(fabric.links) == 8 + 4 * SPINES
    assert fabric.links[0].status() == "(OK OK)"


def test_a_shell_starts_only_when_somebody_asks_for_one():
    with one_leaf() as fabric:
        assert fabric.get("srv0").shell is None
        assert fabric.get("srv0").cmd("echo hello").strip() == "hello"
        assert fabric.get("srv1").shell is None


def test_the_mininet_command_line_knows_ping_iperf3_links_net_and_dump(tmp_path):
    commands = [
        "links",
        "net",
        "dump",
        "srv0 ping -c 1 -W 2 srv1",
        "srv1 iperf3 -s -1 -D",
        "srv1 for try in $(seq 500); do ss -ltn | grep -q :5201 && break; sleep 0.01; done",  # -D returns before it listens
        "srv0 iperf3 -n 1M -c srv1",
        "exit",
    ]
    shell = [sys.executable, "-m", "emu.cli", "shell", "incast_ecn", "--set", "senders=1", "--set", "dilation=200"]
    done = subprocess.run(
        shell,
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"HOME": str(tmp_path)},
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    for words in (
        "srv0:rail0<->leaf0:down0 (OK OK)",
        "srv0 rail0:down0",
        "<FabricNode srv0: rail0:10.0.0.1",
        "1 received",
        "iperf Done.",
    ):
        assert words in text, f"{words!r} is not in:\n{text}"


def test_shell_random_commands_leave_no_prompt_characters(fabric):
    """Mininet finds a command's end by its prompt; output of any length must come back whole."""
    for size in random.Random(1).sample(range(1, 20_000), 5):
        assert len(fabric.get("srv3").cmd(f"head -c {size} /dev/zero | tr '\\0' x")) == size


BUILD_ONE = """
import sys
sys.path[:0] = sys.argv[1:]
import test_fabric
with test_fabric.one_leaf() as fabric:
    print(fabric.knobs_compared)
"""


def test_a_fabric_builds_in_a_container_that_has_no_host_wide_knobs():
    """Outside the first network namespace there is no net.core.netdev_max_backlog."""
    alone = ["unshare", "--net", sys.executable, "-c", BUILD_ONE, str(REPOSITORY), str(Path(__file__).parent)]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stdout + done.stderr


def test_root_without_the_right_to_make_namespaces_is_told_what_helps():
    unable = ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-m", "emu.cli", "probe"]
    done = subprocess.run(unable, capture_output=True, text=True, cwd=REPOSITORY, timeout=TIMEOUT_S)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "CAP_SYS_ADMIN" in done.stderr and "--clock virtual" in done.stderr and len(done.stderr.splitlines()) == 1
