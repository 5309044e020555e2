"""Packet-hops a wall second through the eBPF NICs, in the lab kernel on the virtual clock: one core, all queues busy.

A hop is a packet, data or ACK, that leaves a queue; every port has TBF, switch ports RED too. `leaf_spine`: NICs send to
the other group of leaves, so that each packet takes four hops. `right_neighbour`: 640 GPUs (80 servers under 64-port
leaves), each sends 16 MiB to its right neighbour on the rail. Both payloads must give the same virtual time and bytes.
`million_requests`: 2^20 requests of one packet, a chain round a ring of 64 NICs: each waits for the one from the left.

Where a hop's time goes (perf on the guest, leaf_spine, elided; perf record -e cpu-clock): routing 24 %, the engine's
interpreter and helpers 19 %, queues and their timers 17 %, veth and softirq 15 %, skb memory 7 %, virtual time 4 %, the host
and this process 11 %. The floor, forwarding and engine with no queue at all, is 2.1 to 2.3 times as fast; without RED 1.08
times, without size tables 1.11. Tried and given up: redirecting by a BPF path per queue pair in place of the FIB, results
equal, 1.06 times as fast on leaf_spine and 0.92 to 1.04 with 640 GPUs (3 runs): little is gained where BPF is interpreted.

The guest can't see wall time: it says when a phase ends, and this process looks at its clock.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from emu.bpf.build import build as build_bpf
from emu.errors import FabricError
from emu.lab import guest
from emu.topology.model import nic
from emu.topology.queue_profile import EcnProfile, QueueProfile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib

GOAL_HOPS_PER_S = {"elided": 0.8e6, "full": 0.4e6}
GUEST_BYTES = 4 << 30
GUEST_LIMIT_S = 300
DILATION = 100
WINDOW_PACKETS = 16  # more than a path holds, so every queue is busy; with more, packets only wait and leave the cache
RUN_LIMIT_S = 60  # of kernel time
SHAPES = {
    "leaf_spine": {"servers": 16, "leaf_down": 8, "leaf_up": 8, "stride": 8, "size_bytes": mib(24)},
    "right_neighbour": {"servers": 80, "leaf_down": 64, "leaf_up": 64, "stride": 1, "size_bytes": mib(16)},
    "million_requests": {"servers": 8, "leaf_down": 8, "leaf_up": 8, "stride": 1, "size_bytes": 1024, "rounds": 1 << 14},
}
CASES = [("leaf_spine", "elided"), ("leaf_spine", "full"), ("right_neighbour", "elided"), ("million_requests", "elided")]
HERE = Path(__file__).resolve()


class Clock:
    """Takes the guest's output: a line that is JSON is kept with the wall time at which it came."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, dict]] = {}
        self._rest = b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.seen[said.pop("phase")] = time.monotonic(), said

    def flush(self) -> None:
        """Nothing is kept back."""


def run(progress: object) -> dict:
    """Metrics packet_hops_per_s (elided), …_full, and the 640-GPU run's seconds; a row per case."""
    build_bpf()  # not in the guest, where a compilation would use up random numbers that the run should have
    rows = []
    for shape, payload in CASES:
        with progress.phase(f"{shape}, payload={payload}"):
            rows.append(measure(shape, payload))
    rate = {(row["case"], row["payload"]): row["packet_hops_per_s"] for row in rows}
    elided, full = rows[0], rows[1]
    return {
        "metrics": {
            "packet_hops_per_s": {"value": rate["leaf_spine", "elided"], "unit": "packet-hops/s"},
            "packet_hops_per_s_full": {"value": rate["leaf_spine", "full"], "unit": "packet-hops/s"},
            "ratio_to_goal": {"value": rate["leaf_spine", "elided"] / GOAL_HOPS_PER_S["elided"], "unit": "ratio"},
            "ratio_to_goal_full": {"value": rate["leaf_spine", "full"] / GOAL_HOPS_PER_S["full"], "unit": "ratio"},
            "payloads_equal": {"value": all(elided[k] == full[k] for k in ("completion_us", "queue_bytes")), "unit": "bool"},
            "gpus_640_s": {"value": rows[2]["total_s"], "unit": "s"},
            "million_requests_s": {"value": rows[3]["load_s"] + rows[3]["run_s"], "unit": "s"},
            "million_requests_bytes": {"value": rows[3]["memory_bytes"], "unit": "bytes"},
        },
        "rows": rows,
    }


def measure(shape: str, payload: str) -> dict:
    """One boot, one run; seconds of wall time per phase."""
    clock, booted = Clock(), time.monotonic()
    python_path = {"PYTHONPATH": str(HERE.parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}  # no run finds more than another
    code = guest.run([sys.executable, str(HERE), shape, payload], seed=1, mem_bytes=GUEST_BYTES, limit_s=GUEST_LIMIT_S,
                     env=python_path, stdout=clock)
    ended = time.monotonic()
    if code:
        raise FabricError(f"benchmark nic, {shape}, payload={payload}: the guest ended with {code}")
    at = {phase: when for phase, (when, _) in clock.seen.items()}
    result = clock.seen["counted"][1]
    run_s = at["ran"] - at["loaded"]
    return {
        "case": shape, "payload": payload, "gpus": result["gpus"], "requests": result["requests"],
        "memory_bytes": result["memory_bytes"], "packet_hops": result["packet_hops"],
        "packet_hops_per_s": result["packet_hops"] / run_s, "completion_us": result["completion_us"],
        "queue_bytes": result["queue_bytes"], "boot_s": at["imported"] - booted, "build_s": at["built"] - at["imported"],
        "load_s": at["loaded"] - at["built"], "run_s": run_s, "destroy_s": ended - at["counted"], "total_s": ended - booted,
    }


def say(phase: str, **facts: object) -> None:
    print(json.dumps({"phase": phase} | facts), flush=True)


def in_guest(shape: str, payload: str) -> None:
    from emu.fabric.fabric import Fabric
    from emu.measure.counters import difference, snapshot
    from emu.nic.engine import Engine
    from emu.nic.transport import Transport
    from emu.scale import Scale
    from emu.topology.plan import make_plan

    say("imported")
    case = SHAPES[shape]
    cluster = SpineLeaf(
        servers=case["servers"], gpus_per_server=8, wiring="rail", leaf_down=case["leaf_down"], leaf_up=case["leaf_up"],
        rate_bps=gbps(400),
        queue=QueueProfile(buffer_bytes=mib(16), ecn=EcnProfile(kmin_bytes=800_000, kmax_bytes=3_200_000, pmax=0.2)),
    ).topology()

    with Fabric(make_plan(cluster, seed=1), Scale(dilation=DILATION), elided=payload == "elided") as fabric:
        say("built")
        before, messages = snapshot(fabric), chain(case)
        with Engine(fabric, messages, Transport(window_packets=WINDOW_PACKETS)) as engine:
            say("loaded")
            outcome = engine.run(RUN_LIMIT_S)
            say("ran")
        if outcome.left:
            raise FabricError(f"{outcome.left} messages are not complete after {RUN_LIMIT_S} s")
        delta = difference(before, snapshot(fabric))
        say("counted", gpus=8 * case["servers"], requests=len(messages), memory_bytes=memory_bytes(),
            packet_hops=sum(port.sent_packets for port in delta.values()),
            queue_bytes=sum(port.sent_bytes for port in delta.values()), completion_us=outcome.elapsed_ns / DILATION / 1000)


def chain(case: dict) -> list:
    """Every NIC to the one `stride` servers on, `rounds` times, each time after what came to its server from the left."""
    from emu.nic.work_request import Message

    servers = case["servers"]
    pairs = [(nic(server, gpu), nic((server + case["stride"]) % servers, gpu)) for server in range(servers) for gpu in range(8)]
    left = [pairs.index((nic((server - case["stride"]) % servers, gpu), nic(server, gpu))) for server in range(servers)
            for gpu in range(8)]
    return [
        Message(source=source, target=target, size_bytes=case["size_bytes"], after=(before + left[at],) if before >= 0 else ())
        for before in range(-len(pairs), (case.get("rounds", 1) - 1) * len(pairs), len(pairs))
        for at, (source, target) in enumerate(pairs)
    ]


def memory_bytes() -> int:
    """What the whole guest uses, maps and programs included: proc_meminfo(5)."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(lines["MemTotal"].split()[0]) - int(lines["MemAvailable"].split()[0])) * 1024


if __name__ == "__main__":
    in_guest(*sys.argv[1:])
