"""Promises of a command in the lab kernel: it behaves like any command, depends on the seed, leaves nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from emu.errors import FabricError
from emu.lab import guest, kernel

pytestmark = pytest.mark.needs_lab_kernel
MEM_BYTES = 256 << 20
LIMIT_S = 60                                # far above the second a boot takes; a loaded CI machine is slow
NOBODY = 65534
RANDOM = [sys.executable, "-c", "import os, random; print(os.urandom(16).hex(), random.random(), os.getpid())"]


def run(argv: list[str], **options) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command in the lab kernel."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    options = {"seed": 1, "mem_bytes": MEM_BYTES, "limit_s": LIMIT_S, **options}
    code = guest.run(argv, stdout=stdout, stderr=stderr, **options)
    return code, stdout.getvalue().decode(), stderr.getvalue().decode()


def shell(text: str, **options) -> str:
    """stdout of a shell command that must succeed."""
    code, stdout, stderr = run(["sh", "-euc", text], **options)
    assert code == 0, f"exit {code}: {stderr}"
    return stdout


def wait_until(condition, what: str, timeout_s: float = LIMIT_S):
    """The condition's first true value; fails when the deadline passes."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: still {value!r} after {timeout_s} s"
        time.sleep(0.02)
    return value


def run_folders(token: str) -> list[Path]:
    """Run folders, anywhere the guest's memory may be, of the command that carries the token."""
    found = [spec for top in ("/dev/shm", tempfile.gettempdir()) for spec in Path(top).glob("railbed-lab-*/spec.json")]
    return [spec.parent for spec in found if token in _text(spec)]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:                         # the run ended while we looked
        return ""


def processes_of(folder: Path) -> list[int]:
    """Every process that works in the run's folder or names it: keeper, kernel, the guest's own."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _belongs(entry, folder)]


def _belongs(entry: Path, folder: Path) -> bool:
    try:
        return str(folder) in os.readlink(entry / "cwd") + (entry / "cmdline").read_text(errors="replace")
    except OSError:
        return False


@pytest.mark.parametrize("command, code", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)])
def test_the_exit_code_is_the_command_s(command, code):
    assert run(["sh", "-c", command])[0] == code


def test_a_command_that_does_not_exist_is_named_and_ends_127():
    code, _stdout, stderr = run(["no-such-command-here"])
    assert code == 127 and "no-such-command-here" in stderr, (code, stderr)


def test_output_is_the_command_s_bytes_on_their_own_streams():
    code, stdout, stderr = run(["sh", "-c", r"printf 'a\nb\r\n\001'; printf 'c\n' >&2"])
    assert (code, stdout, stderr) == (0, "a\nb\r\n\x01", "c\n")


def test_output_arrives_while_the_command_still_runs():
    class Watched(io.BytesIO):
        seen = threading.Event()

        def write(self, data: bytes) -> int:
            self.seen.set()
            return super().write(data)

    failed: list[str] = []

    def boot() -> None:
        try:
            guest.run(["sh", "-c", "echo early; sleep inf"], seed=1, mem_bytes=MEM_BYTES, limit_s=8, stdout=Watched())
        except FabricError as error:
            failed.append(str(error))

    running = threading.Thread(target=boot)
    running.start()
    early = Watched.seen.wait(LIMIT_S) and running.is_alive()
    running.join()
    assert early, "the line came only at the end"
    assert failed and "stopped after 8 s" in failed[0], failed


def test_environment_directory_and_user_are_as_asked(tmp_path):
    printed = shell("echo $RAILBED_LAB $COLOUR $(id -u) $(uname -n) $(pwd)", cwd=tmp_path, env={"COLOUR": "blue"})
    assert printed.split() == ["1", "blue", "0", "lab", str(tmp_path)]


def test_files_reach_the_host_where_asked_and_only_there(tmp_path):
    hidden = Path(tempfile.gettempdir()) / f"railbed-test-{os.getpid()}"
    shell(f"echo kept > {tmp_path}/out; echo lost > {hidden}", cwd=Path("/"), host_folders=[tmp_path])
    assert (tmp_path / "out").read_text() == "kept\n" and not hidden.exists()


def test_the_seed_alone_decides_random_numbers():
    first, again, other = (run(RANDOM, seed=seed)[1] for seed in (7, 7, 8))
    assert first == again, f"seed 7 twice: {first!r} and {again!r}"
    assert first.split()[:2] != other.split()[:2] and first.split()[0] != other.split()[0], (first, other)


def test_the_seed_decides_also_on_a_machine_that_is_kept_busy():
    quiet = run(RANDOM, seed=7)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        loaded = run(RANDOM, seed=7)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert quiet == loaded


def test_work_takes_no_time_and_waiting_takes_no_wall_time():
    code = ("import time; a = time.monotonic_ns(); [None for _ in range(10**6)]; b = time.monotonic_ns()\n"
            "time.sleep(3600); print(b - a, time.monotonic_ns() - b, time.time_ns())")
    began = time.monotonic()
    work_ns, sleep_ns, now_ns = map(int, run([sys.executable, "-c", code])[1].split())
    wall_s = time.monotonic() - began
    assert work_ns < 10_000, f"a million steps took {work_ns} ns of virtual time"
    assert 3600e9 <= sleep_ns < 3601e9 and wall_s < LIMIT_S, f"slept {sleep_ns} ns in {wall_s:.1f} s"
    assert guest.START_NS < now_ns < guest.START_NS + 2 * sleep_ns, now_ns


def test_a_guest_over_its_limit_is_stopped_with_what_it_said_and_what_ran():
    loop = "import time; print('counting', flush=True)\nwhile time.time() > 0: pass"
    with pytest.raises(FabricError) as stopped:
        run([sys.executable, "-c", loop], limit_s=5)
    message = str(stopped.value)
    assert "stopped after 5 s" in message and "python was running" in message and "counting" in message, message
    with pytest.raises(FabricError, match="nothing was running"):
        run(["sleep", "inf"], limit_s=4)


def test_a_program_that_asks_for_more_memory_than_the_guest_has_is_told_so():
    code, _, stderr = run([sys.executable, "-c", "kept = [bytearray(1 << 20) for _ in range(10**6)]"])
    assert code == 1 and "MemoryError" in stderr, f"exit {code}: {stderr}"


def test_a_kernel_that_runs_out_of_memory_is_reported_with_its_size():
    fill_pipes = (
        "import os, fcntl\n"
        "for _ in range(400):\n"
        "    ends = os.pipe()\n"
        "    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)\n"
        "    os.write(ends[1], bytes(1 << 20))"
    )
    with pytest.raises(FabricError, match=f"ran out of its {MEM_BYTES >> 20} MiB of memory"):
        run([sys.executable, "-c", fill_pipes])


def test_nothing_is_left_after_a_run():
    token = f"token-{os.getpid()}-ended"
    run(["echo", token])
    assert run_folders(token) == []


@pytest.mark.parametrize("kill, whom",
                         [(signal.SIGKILL, "owner"), (signal.SIGINT, "owner"), (signal.SIGKILL, "keeper")])
def test_nothing_is_left_after_a_kill(kill, whom):
    token = f"token-{os.getpid()}-{kill}-{whom}"
    code = (f"from emu.lab import guest; "
            f"guest.run(['sh', '-c', ': {token}; sleep inf & sleep inf'], seed=1, mem_bytes={MEM_BYTES})")
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=guest.PACKAGE_ROOT, stderr=subprocess.DEVNULL)
    try:
        folder = wait_until(lambda: run_folders(token), "run folder")[0]
        wait_until(lambda: len(processes_of(folder)) >= 4, "keeper, kernel, init and the shell")
        os.kill(owner.pid if whom == "owner" else keeper_of(folder), kill)
        owner.wait(LIMIT_S)
        wait_until(lambda: not processes_of(folder), "processes gone")
        wait_until(lambda: not folder.exists(), "run folder gone")
    finally:
        owner.kill()
        owner.wait()


def keeper_of(folder: Path) -> int:
    return next(pid for pid in processes_of(folder) if b"emu.lab.keeper" in Path(f"/proc/{pid}/cmdline").read_bytes())


def test_an_ordinary_user_can_run_it():
    """As root we become nobody; the kernel's cache must then be one that nobody can read."""
    code = ("import os; from emu.lab import guest; assert os.getuid() != 0; "
            f"print(guest.run(['id', '-u'], seed=1, mem_bytes={MEM_BYTES}, limit_s={LIMIT_S}))")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o755)
        built = kernel.need_path().parent
        shutil.copytree(built, Path(cache) / "railbed/kernel" / built.name)
        done = subprocess.run([*user, sys.executable, "-c", code], cwd=guest.PACKAGE_ROOT, capture_output=True,
                              text=True, env={**os.environ, "XDG_CACHE_HOME": cache})
    assert done.returncode == 0 and done.stdout.split() == ["0", "0"], done


def test_a_terminal_can_be_opened_and_mininet_imported():
    code = "import pty, os; print(os.ttyname(pty.openpty()[1])); import mininet.net as net; print(net.Mininet.__name__)"
    assert run([sys.executable, "-c", code])[:2] == (0, "/dev/pts/0\nMininet\n")


def test_red_below_tbf_and_netem_are_the_kernel_s_own():
    shown = shell("tc qdisc add dev lo root handle 1: tbf rate 10mbit burst 10000 limit 100000\n"
                  "tc qdisc add dev lo parent 1:1 handle 2: red limit 100000 min 10000 max 20000 avpkt 1000 burst 20 "
                  "probability 0.1 bandwidth 10mbit ecn\n"
                  "ip link add name ve0 type veth peer name ve1\ntc qdisc add dev ve0 root netem delay 7us\n"
                  "tc -j qdisc show")
    kinds = {queue["kind"] for queue in json.loads(shown)}
    assert {"tbf", "red", "netem"} <= kinds, kinds


def test_every_part_of_a_fabric_is_there():
    shell("ip netns add x; ip link add name vrf0 type vrf table 10; ip link add name br0 type bridge\n"
          "ip link add name vx0 type vxlan id 5 local 127.0.0.1 dstport 4789; ip tuntap add dev tap0 mode tap\n"
          "ip link add name du0 type dummy; ip link add name ifb0 type ifb\n"
          "ip link set du0 up; ip addr add 10.0.0.1/24 dev du0\n"
          "ip route add 10.9.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.0.3\n"
          "for queue in htb prio fq fq_codel plug pfifo 'ets bands 3'\n"
          "do tc qdisc add dev ifb0 root $queue; tc qdisc del dev ifb0 root; done; tc qdisc add dev du0 clsact\n"
          "tc filter add dev du0 egress matchall action mirred egress redirect dev ifb0\n"
          "tc filter add dev du0 ingress protocol ip flower dst_ip 10.0.0.9 action gact drop\n"
          "tc filter add dev du0 ingress protocol ip u32 match ip dport 4791 0xffff action skbedit priority 3\n"
          "sysctl -q net.ipv4.tcp_congestion_control=dctcp net.ipv4.fib_multipath_hash_policy=1\n"
          "ping -q -c 1 ::1; test -d /sys/fs/bpf; touch /dev/shm/x /run/x /tmp/x")
