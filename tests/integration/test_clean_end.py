"""Promises about the end: whatever stops a run, nothing of ours stays and nothing of anybody else's is touched."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pkgutil
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from emu.fabric import clean, host, netns, registry
from emu.fabric.fabric import Fabric
from emu.fabric.probe import probe
from emu.scale import Scale
from emu.topology.plan import make_plan
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_bpf_marker]

REPOSITORY = Path(__file__).parents[2]
FORK = multiprocessing.get_context("fork")  # a child that has everything imported: its first moments are the build's
TIMEOUT_S = 30.0
INTERRUPTS, KILLS, CYCLES = 8, 12, 20
PAST_THE_BUILD = 1.2  # random moments lie between the start and this many usual builds: a few come after it, as in life


class Injected(Exception):
    """The failure that a test plants."""


@pytest.fixture(autouse=True)
def bpf_marker(monkeypatch) -> None:
    """With the marker there are programs, maps and pins to leave behind."""
    monkeypatch.setattr("emu.fabric.fabric.choose_marker", lambda _plan: "bpf")


@pytest.fixture(autouse=True)
def backlog_stays() -> Iterator[None]:
    """The host's input backlog after the last run is what it was before the first, whoever else runs meanwhile."""
    before = resting_backlog()
    yield
    assert resting_backlog() == before
    with registry.locked():
        if not any(registry.runs().values()):
            assert host.BACKLOG.read_text().strip() == before


def resting_backlog() -> str:
    """The value without any run: the saved one while a run has raised it."""
    with registry.locked():
        return (host._SAVED if host._SAVED.exists() else host.BACKLOG).read_text().strip()


def fabric_of(run_id: str | None = None) -> Fabric:
    """4 servers of 2 GPUs, 4 leaves, 2 spines, with ECN; `run_id` instead of a random one."""
    ecn = EcnProfile(kmin_bytes=100_000, kmax_bytes=400_000, pmax=0.1)
    shape = SpineLeaf(
        servers=4,
        gpus_per_server=2,
        wiring="rail",
        leaf_down=2,
        leaf_up=2,
        rate_bps=gbps(400),
        queue=QueueProfile(buffer_bytes=mib(16), ecn=ecn),
    )
    fabric = Fabric(make_plan(shape.topology(), seed=1), Scale(dilation=100, catch_up_ns=100_000))
    fabric.run_id = run_id or fabric.run_id
    return fabric


def traces(run_id: str) -> list[str]:
    """Everything on this machine that carries a run id which begins with `run_id`."""
    left = [f"namespace {path.name}" for path in netns.NETNS_DIR.glob(f"rb{run_id}*")]
    left += [f"state {path}" for path in registry.STATE_DIR.glob(f"*{run_id}*")]
    left += [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if run_id in line]
    return left + [f"process {pid}" for pid in processes(f"{registry.RUN_ENV}={run_id}")]


def processes(start_of_variable: str) -> list[int]:
    """Pids with such an environment variable."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile
        if any(variable.startswith(start_of_variable.encode()) for variable in variables):
            found.append(int(entry.name))
    return found


def namespace_inodes(run_id: str) -> set[int]:
    return {(netns.NETNS_DIR / name).stat().st_ino for name in netns.of_run(run_id)}


def processes_in(inodes: set[int]) -> list[int]:
    """Pids that are inside one of the namespaces."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/net").stat().st_ino in inodes:
                found.append(int(entry.name))
        except OSError:
            continue  # gone meanwhile
    return found


def answers(fabric: Fabric) -> bool:
    """Does a ping from the first server to the last cross it?"""
    return " 1 received" in fabric.hosts[0].cmd(f"ping -c 1 -W 2 {fabric.hosts[-1].IP()}")


def railbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "emu.cli", *arguments], capture_output=True, text=True, cwd=REPOSITORY, timeout=TIMEOUT_S
    )


def live(run_id: str, says: Connection) -> None:
    """A child's life: probe, build, a shell with a program in the background, wait. Its run ids are known before."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    numbers = itertools.count()
    registry.new_run_id = lambda: f"{run_id}{next(numbers)}"
    probe.cache_clear()
    says.send("start")
    with fabric_of() as fabric:
        fabric.get("srv0").cmd("sleep 1000 &")
        says.send("built")
        signal.pause()


@contextmanager
def child(run_id: str) -> Iterator[tuple[multiprocessing.Process, Callable[[str], None]]]:
    """(the process, a function that waits until it says a word)."""
    hears, says = FORK.Pipe(duplex=False)
    process = FORK.Process(target=live, args=(run_id, says))
    process.start()

    def wait_for(word: str) -> None:
        assert hears.poll(TIMEOUT_S), f"the child did not say {word!r} in {TIMEOUT_S:g} s"
        assert hears.recv() == word

    try:
        yield process, wait_for
    finally:
        process.kill()
        process.join()
        hears.close()
        says.close()
        clean.clean([one for one in registry.runs() if one.startswith(run_id)])


@pytest.fixture(scope="module")
def usual_build_s() -> float:
    """How long a child needs here from its start, with the probe of the kernel, to a fabric that is built."""
    with child(secrets.token_hex(3)) as (_, wait_for):
        wait_for("start")
        began = time.monotonic()
        wait_for("built")
        return time.monotonic() - began


def ended(process: multiprocessing.Process) -> int:
    process.join(TIMEOUT_S)
    assert process.exitcode is not None, f"the child still runs after {TIMEOUT_S:g} s"
    return process.exitcode


def test_an_exception_inside_the_block_removes_everything(run_id):
    with pytest.raises(Injected), fabric_of(run_id) as fabric:
        inodes = namespace_inodes(run_id)
        assert len(inodes) == 4 + 4 + 2
        assert any(line.startswith("mount") for line in traces(run_id)), traces(run_id)
        fabric.get("srv0").cmd("sleep 1000 &")
        raise Injected
    assert traces(run_id) == []
    assert processes_in(inodes) == []


def test_a_fabric_may_be_stopped_twice_and_before_it_was_built(run_id):
    fabric = fabric_of(run_id)
    fabric.stop()
    with fabric:
        fabric.stop()
        assert traces(run_id) == []
    assert traces(run_id) == []


@pytest.mark.parametrize("error", [Injected, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("emu.fabric.registry.register", 1),
        ("emu.fabric.host.raise_backlog", 1),
        ("emu.fabric.netns.create", 1),
        ("emu.fabric.netns.create", 4),
        ("emu.fabric.routes.set_knobs", 3),
        ("emu.fabric.build.Netlink", 5),
        ("emu.fabric.link.create_pair", 7),
        ("emu.fabric.netlink.Netlink.run", 2),
        ("emu.fabric.netlink.Netlink.run", 12),
        ("emu.fabric.link.offloads_off", 3),
        ("emu.fabric.fabric.attach_markers", 1),
        ("emu.fabric.build.read_back", 1),
        ("emu.fabric.fabric.Fabric._register_with_mininet", 1),
    ],
)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_build_that_fails_at_any_step_leaves_nothing(monkeypatch, run_id, step, call, moment, error):
    calls = itertools.count(1)
    original = pkgutil.resolve_name(step)
    fabric = fabric_of(run_id)

    def failing(*arguments, **options):
        due = next(calls) == call
        if due and moment == "before":
            raise error
        result = original(*arguments, **options)
        if due:
            raise error
        return result

    monkeypatch.setattr(step, failing)
    with pytest.raises(error), fabric:
        pytest.fail("the build went through")
    assert next(calls) > call, f"{step} was not called {call} times"
    assert traces(run_id) == []


def test_ctrl_c_during_a_run_leaves_nothing(run_id):
    with child(run_id) as (process, wait_for):
        wait_for("start")
        wait_for("built")
        assert len([line for line in traces(run_id) if line.startswith("namespace")]) == 10
        os.kill(process.pid, signal.SIGINT)
        assert ended(process) == 1
        assert traces(run_id) == []


@pytest.mark.parametrize("number", range(INTERRUPTS))
def test_ctrl_c_at_any_moment_of_a_build_leaves_nothing(run_id, usual_build_s, number):
    with child(run_id) as (process, wait_for):
        wait_for("start")
        process.join(random.Random(f"interrupt {number}").uniform(0, PAST_THE_BUILD * usual_build_s))
        os.kill(process.pid, signal.SIGINT)
        assert ended(process) == 1
        assert traces(run_id) == []


@pytest.fixture
def decoys(run_id, tmp_path) -> Iterator[Callable[[], list[str]]]:
    """Things of other people that look like ours, with an id of the test's own; the function tells which are gone."""
    links = [f"{run_id}-eth0", f"{run_id}-eth1", f"br{run_id}"]
    spaces = [f"rbdecoy{run_id}", f"rbdec{run_id}-leaf0"]
    file = tmp_path / "rbdecoy"
    subprocess.run(["ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1]], check=True)
    subprocess.run(["ip", "link", "add", links[2], "type", "bridge"], check=True)
    for name in spaces:
        netns.create(name)
    file.touch()
    like_ours = os.environ | {registry.RUN_ENV: f"decoy{run_id}"}
    others = [
        subprocess.Popen(["ping", "1000"], executable="/bin/sleep", env=like_ours),
        subprocess.Popen(["mininet:srv0", "1000"], executable="/bin/sleep"),
    ]

    def missing() -> list[str]:
        gone = [name for name in links if not Path("/sys/class/net", name).exists()]
        gone += [name for name in spaces if not os.path.ismount(netns.NETNS_DIR / name)]
        gone += [str(process.args) for process in others if process.poll() is not None]
        return gone + ([] if file.exists() else [str(file)])

    try:
        yield missing
    finally:
        for process in others:
            process.kill()
            process.wait()
        for name in spaces:
            netns.remove(name)
        for name in (links[0], links[2]):
            subprocess.run(["ip", "link", "delete", name], check=True)


def test_clean_after_kill_9_at_any_moment_removes_all_of_ours_and_nothing_else(decoys, usual_build_s):
    began = time.monotonic()
    rng = random.Random(9)
    for number in range(KILLS):
        run_id = f"{rng.getrandbits(24):06x}k{number}x"
        with child(run_id) as (process, wait_for):
            wait_for("start")
            process.join(delay_s := rng.uniform(0, PAST_THE_BUILD * usual_build_s))
            process.kill()
            process.join()
            done = railbed("clean")
            assert done.returncode == 0, done.stderr
            assert traces(run_id) == [], f"killed {delay_s * 1e3:.1f} ms after the start; clean said: {done.stdout}"
    assert decoys() == []
    assert time.monotonic() - began < 40


def test_clean_says_what_it_removed_and_then_that_nothing_is_left(run_id):
    with child(run_id) as (process, wait_for):
        wait_for("start")
        wait_for("built")
        process.kill()
        process.join()
        run = next(one for one in registry.runs() if one.startswith(run_id))
        done = railbed("clean", run)
        assert run in done.stdout and "1 runs removed" in done.stdout, done.stdout + done.stderr
        assert traces(run_id) == []
        again = railbed("clean", run)
        assert again.returncode == 2 and f"run {run!r} is not known" in again.stderr, again.stderr


def test_a_live_run_is_not_cleaned_but_named(run_id):
    with fabric_of(run_id) as fabric:
        before = traces(run_id)
        done = railbed("clean", run_id)
        assert done.returncode == 2, done.stdout
        assert done.stderr.strip() == f"railbed: run '{run_id}' is alive; end it first (Ctrl-C in its terminal)"
        assert railbed("clean").returncode == 0
        assert [line for line in before if line not in traces(run_id)] == []
        assert answers(fabric)


def test_two_fabrics_side_by_side_do_not_disturb_each_other(run_id):
    with fabric_of(f"{run_id}b") as two:
        with fabric_of(f"{run_id}a") as one:
            assert answers(one) and answers(two)
            one_ports = {port.address for port in one.ports.values()}
            assert one_ports == {port.address for port in two.ports.values()}, "the same plan is the harder case"
        assert traces(f"{run_id}a") == []
        assert answers(two)
        assert host.BACKLOG.read_text().strip() == str(host.BACKLOG_PACKETS)


def test_cleaning_a_dead_run_leaves_the_one_beside_it(run_id):
    with fabric_of(f"{run_id}live") as fabric, child(f"{run_id}dead") as (process, wait_for):
        wait_for("start")
        wait_for("built")
        process.kill()
        process.join()
        assert railbed("clean").returncode == 0
        assert traces(f"{run_id}dead") == []
        assert host.BACKLOG.read_text().strip() == str(host.BACKLOG_PACKETS)
        assert answers(fabric)


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000 &",
        "nohup sleep 1000 >/dev/null 2>&1 &",
        "setsid sleep 1000 &",
        "(setsid sh -c 'sleep 1000' &)",
        "iperf3 -s -D",
    ],
)
def test_what_a_shell_has_started_ends_with_the_fabric(run_id, command):
    with fabric_of(run_id) as fabric:
        fabric.get("srv0").cmd(command)
        inodes = namespace_inodes(run_id)
        assert len(processes_in(inodes)) >= 2, "the shell and the program"
    assert processes_in(inodes) == []
    assert traces(run_id) == []


def test_a_process_that_is_born_while_its_parents_are_killed_ends_too(run_id, monkeypatch):
    """The second one starts right after the first look at what runs, before anything is killed."""
    ours = os.environ | {registry.RUN_ENV: run_id}
    started = [subprocess.Popen(["sleep", "1000"], env=ours)]
    look = clean.processes_of

    def look_and_fork(run: str) -> list[int]:
        found = look(run)
        if len(started) == 1:
            started.append(subprocess.Popen(["sleep", "1000"], env=ours))
        return found

    monkeypatch.setattr(clean, "processes_of", look_and_fork)
    try:
        assert clean.kill_processes(run_id) == 2
        assert traces(run_id) == []
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_building_and_destroying_again_and_again_leaks_nothing(run_id):
    for number in range(CYCLES):
        with fabric_of(f"{run_id}n{number}x") as fabric:
            fabric.get("srv0").cmd("true")
        if number == 0:
            descriptors = sorted(os.listdir("/proc/self/fd"))
    after = sorted(os.listdir("/proc/self/fd"))
    assert len(after) == len(descriptors), f"{len(after) - len(descriptors)} more after {CYCLES - 1} builds"
    assert traces(run_id) == []


def test_a_caller_stays_in_its_own_namespace(run_id):
    home = os.stat("/proc/thread-self/ns/net").st_ino
    with pytest.raises(Injected), fabric_of(run_id), netns.inside(netns.name_of(run_id, "leaf0")):
        assert os.stat("/proc/thread-self/ns/net").st_ino != home
        raise Injected
    assert os.stat("/proc/thread-self/ns/net").st_ino == home
