"""Promises to users of stock Mininet: `mn --custom` loads our clusters, builds them with its own nodes, and they ping.

Everything happens in namespaces of the test's own (network, processes, mounts with an empty /tmp): mn makes its
switches in the namespace it is started in, and after a failure kills processes by name and removes /tmp/*.log.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_root

REPOSITORY = Path(__file__).parents[2]
TOPOLOGIES = REPOSITORY / "emu/topology/mininet_topo.py"
BRIDGE = Path(__file__).parent / "bridge_switch.py"
MN = Path(sys.executable).parent / "mn"
ALONE = [
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    # the checkout may itself be below /tmp: it is put aside meanwhile
    'set -e; mount -t tmpfs tmpfs /mnt; mkdir /mnt/checkout; mount --rbind "$0" /mnt/checkout; '
    'mount -t tmpfs tmpfs /tmp; mkdir -p "$0"; mount --move /mnt/checkout "$0"; exec env HOME=/tmp "$@"',
    str(REPOSITORY),
]
TIMEOUT_S = 60


def alone(*command: str, stdin: str = "") -> str:
    """What it said, run away from the checkout with nobody else's network, processes or temporary files in reach."""
    done = subprocess.run([*ALONE, *command], input=stdin, capture_output=True, text=True, cwd="/", timeout=TIMEOUT_S)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


def mn(topo: str, *arguments: str) -> str:
    """Stock mn with our topologies and a switch that needs no Open vSwitch."""
    custom = ["--custom", f"{BRIDGE},{TOPOLOGIES}", "--switch", "bridge", "--controller", "none"]
    return alone(sys.executable, str(MN), *custom, "--topo", topo, *arguments)


@pytest.mark.parametrize("wiring", ["rail", "single"])
def test_mn_builds_our_cluster_and_every_server_pings_every_other(wiring):
    """One uplink a leaf: bridges without spanning tree would turn a second one into a loop."""
    leaf_down = {"rail": 3, "single": 4}[wiring]
    said = mn(f"{wiring},servers=3,gpus_per_server=2,leaf_down={leaf_down},leaf_up=1", "--test", "pingall")
    assert said.endswith("exit 0"), said
    assert "*** Adding hosts:\nsrv0 srv1 srv2" in said, said
    assert "*** Adding switches:\nleaf0 leaf1 spine0" in said, said
    assert "Results: 0% dropped (6/6 received)" in said, said


@pytest.mark.parametrize(
    ("topo", "switches"),
    [("fat_tree,radix=2", "core0 p0agg0 p0edge0 p1agg0 p1edge0"), ("dragonfly,groups=2,routers=1", "g0r0 g1r0")],
)
def test_mn_builds_our_other_topologies_too(topo, switches):
    """The smallest, which have no loop."""
    said = mn(topo, "--test", "pingall")
    assert said.endswith("exit 0"), said
    assert f"*** Adding switches:\n{switches}" in said, said
    assert "Results: 0% dropped (2/2 received)" in said, said


def test_mns_command_line_shows_our_interface_names():
    command = ["--custom", f"{BRIDGE},{TOPOLOGIES}", "--switch", "bridge", "--controller", "none"]
    topo = "rail,servers=2,gpus_per_server=2,leaf_down=2,leaf_up=1"
    said = alone(sys.executable, str(MN), *command, "--topo", topo, stdin="net\nexit\n")
    for words in ("srv1 srv1-rail0:leaf0-down1 srv1-rail1:leaf1-down1", "leaf0-up0:spine0-down0"):
        assert words in said, f"{words!r} is not in:\n{said}"


def test_a_bad_cluster_is_refused_in_our_own_words_by_mn_too():
    assert "servers=0; want at least 1" in mn("rail,servers=0", "--test", "none")


def test_a_script_of_stock_mininet_takes_our_topology():
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]; import bridge_switch; from mininet.net import Mininet; "
        "from emu.topology.mininet_topo import rail; "
        "topo = rail(servers=2, gpus_per_server=1, leaf_up=0); "
        "net = Mininet(topo=topo, switch=bridge_switch.Bridge, controller=None); "
        "net.start(); lost = net.pingAll(); net.stop(); print('lost', lost)"
    )
    said = alone(sys.executable, "-c", script, str(REPOSITORY), str(BRIDGE.parent))
    assert "lost 0" in said, said
