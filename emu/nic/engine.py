"""The offloaded NIC: an eBPF engine on every NIC runs work requests; Python loads them, starts, and waits for the end.

    with Engine(fabric, messages, Transport(transport="sr")) as engine:
        outcome = engine.run(limit_s=10)

Each server has one tick frame, which goes round through its loopback's slow queue and a NIC: it starts the first requests
and repairs what makes no progress. NICs of a server share a CPU (emu.fabric), so the engine needs no locks.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from emu.errors import FabricError, UsageError
from emu.fabric import host, pacer
from emu.fabric.bpf_filter import INGRESS, add_clsact, attach, remove_clsact
from emu.fabric.fabric import Fabric
from emu.fabric.link import LO_IFINDEX
from emu.fabric.netlink import Batch
from emu.fabric.netns import inside
from emu.fabric.wait import wait_until_empty
from emu.nic import crc_steps
from emu.nic.head import head_sum, head_words
from emu.nic.timer import Timer
from emu.nic.transport import Transport
from emu.nic.work_request import End, Message, Work, arrange, request_table
from emu.topology.model import Port

ETH_P_IP, TICK_BYTES = 0x0800, 62
TICK_HEADER = struct.Struct("!12xH4x")  # and the number of the server, as a tick of nic.bpf.c
TICKS_PER_RTO = 4
QPS_PER_SERVER = 4096  # TICK_QPS of nic.bpf.c
OBJECT = "nic"


def is_tick(frame: bytes) -> bool:
    """A tick comes by a NIC, as the engine's clock, without ever having been on its cable."""
    return frame.startswith(TICK_HEADER.pack(ETH_P_IP))


@dataclass(frozen=True)
class Outcome:
    """What a run came to, in kernel time. `left` requests were not complete when waiting ended (0 if all is well)."""

    first_ns: int
    last_ns: int
    left: int

    @property
    def elapsed_ns(self) -> int:
        return max(0, self.last_ns - self.first_ns)


class Engine:
    """`messages` on the NICs of `fabric`, under one transport. Entering attaches and loads; leaving detaches."""

    def __init__(self, fabric: Fabric, messages: Iterable[Message], transport: Transport) -> None:
        self.fabric, self.transport = fabric, transport
        self.work: Work = arrange(messages)
        self._loaded = fabric.bpf().load(OBJECT)
        self._nics = sorted({end.nic for end in self.work.ends.values()})
        self._servers = {server: number for number, server in enumerate(sorted({nic.node for nic in self._nics}))}
        self._undo = ExitStack()

    def __enter__(self) -> Engine:
        with ExitStack() as undo:
            self._load()
            for server in self._servers:
                undo.callback(self._detach, server)
                self._attach(server)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def run(self, limit_s: float, *, every_ns: int = 0, sample: Callable[[], None] = lambda: None) -> Outcome:
        """Start, and return when every message is complete, or `limit_s` of kernel time has passed.

        `sample` is called every `every_ns` of kernel time meanwhile (0: never).
        """
        self.start()
        return self.wait(limit_s, every_ns=every_ns, sample=sample)

    def start(self) -> None:
        """Put a tick on its way on every server. Marks depend on nothing that drew random numbers before."""
        host.fresh_randomness()
        for number, server in enumerate(self._servers):
            frame = TICK_HEADER.pack(ETH_P_IP) + struct.pack("=I", number)
            with inside(self.fabric.netlink(server).netns), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind(("lo", 0))
                raw.send(frame.ljust(TICK_BYTES, b"\0"))

    def wait(self, limit_s: float, *, every_ns: int = 0, sample: Callable[[], None] = lambda: None) -> Outcome:
        """Until the last message's event, or for `limit_s`; nothing is polled."""
        deadline_s = time.monotonic() + limit_s
        with ExitStack() as closing:
            poll = closing.enter_context(select.epoll())
            # by edge: an earlier run's events are still there, and nobody takes them out
            poll.register(self._loaded.event_fd("nic_events"), select.EPOLLIN | select.EPOLLET)
            timer = closing.enter_context(Timer(every_ns)) if every_ns else None
            if timer:
                poll.register(timer, select.EPOLLIN)
            while self.progress().remaining and (left_s := deadline_s - time.monotonic()) > 0:
                events = [fd for fd, _ in poll.poll(left_s)]
                if timer and timer.fileno() in events:
                    timer.expirations()
                    sample()
        progress = self.progress()
        if not progress.remaining:
            wait_until_empty(self._unacknowledged, limit_s, "acknowledgements of the last packets")
        return Outcome(first_ns=progress.first_ns, last_ns=progress.last_ns, left=progress.remaining)

    def progress(self) -> object:
        """struct nic_progress of nic.h."""
        return self._loaded.map("nic_progress").read(0)

    def ends(self) -> dict[tuple[Port, Port, int], object]:
        """struct nic_qp of nic.h for every end, by (NIC, peer, channel)."""
        first = min(end.qpn for end in self.work.ends.values())
        qps = self._loaded.map("nic_qps").read_range(first, len(self.work.ends))
        return {key: qps[end.qpn - first] for key, end in self.work.ends.items()}

    def connections(self) -> list[tuple[Port, Port, int]]:
        """(source, target, channel) of those that carry messages, in the order of their first."""
        return list(self.work.messages.connections)

    def placed_bytes(self) -> tuple[int, ...]:
        """Payload that has arrived so far, by connection; cheap for a few."""
        qps = self._loaded.map("nic_qps")
        qpns = [self.work.ends[target, source, channel].qpn for source, target, channel in self.connections()]
        return tuple(qps.read_field("placed_bytes", qpn, 1)[0] for qpn in qpns)

    def done_ns(self) -> list[int]:
        """When each message was complete, kernel ns; 0 if it is not. In the order of the messages."""
        done = self._loaded.map("nic_requests").read_field("done_ns", 0, len(self.work.messages))
        return [done[slot] for slot in self.work.slot]

    def _unacknowledged(self) -> list[str]:
        """Ends whose last ACKs are still under way: until then counters of queues and links change."""
        qps, first = self._loaded.map("nic_qps"), min(end.qpn for end in self.work.ends.values())
        una, after = (qps.read_field(name, first, len(self.work.ends)) for name in ("psn_una", "psn_next"))
        return [f"QP {first + at}" for at, pair in enumerate(zip(una, after, strict=True)) if pair[0] != pair[1]]

    def _load(self) -> None:
        scale, mtu_bytes = self.fabric.scale, self.fabric.plan.topology.path_mtu_bytes
        layout = self._loaded.map("nic_requests").layout.value.packer
        requests, releases = request_table(self.work, mtu_bytes, layout)
        self._loaded.map("nic_requests").write_from(0, requests)
        self._loaded.map("nic_releases").write_from(0, releases.tobytes())
        qps = self._loaded.map("nic_qps")
        first = min(end.qpn for end in self.work.ends.values())
        qps.write_from(first, b"".join(self._pack(qps.layout.value, end) for end in self.work.ends.values()))
        windows = self._loaded.map("nic_windows")
        windows.write_from(first, bytes(windows.layout.value.size * len(self.work.ends)))
        for server, number in self._servers.items():
            own = [end.qpn for end in self.work.ends.values() if end.nic.node == server]
            if len(own) > QPS_PER_SERVER:
                raise UsageError(f"{server} has {len(own)} queue pairs; its NICs' timer looks after {QPS_PER_SERVER}: use fewer")
            self._loaded.map("nic_servers").update(number, qpn_first=min(own), qps=len(own))
        if self.transport.icrc:
            self._loaded.map("nic_crc_steps").write_from(0, crc_steps.table())
        self._loaded.map("nic_progress").update(0, remaining=len(self.work.messages))
        self._loaded.map("nic_settings").update(0, **self._settings(scale, mtu_bytes))

    def _settings(self, scale, mtu_bytes: int) -> dict[str, int]:
        transport, dcqcn = self.transport, self.transport.dcqcn
        line_bytes = scale.kernel_bps(self._line_bps()) // 8
        return {
            "rto_ns": scale.kernel_ns(transport.rto_ns),
            "cnp_interval_ns": scale.kernel_ns(dcqcn.cnp_interval_ns),
            "alpha_period_ns": scale.kernel_ns(dcqcn.alpha_period_ns),
            "rise_period_ns": scale.kernel_ns(dcqcn.rise_period_ns),
            "rise_additive_bytes": round(line_bytes * dcqcn.rise_additive),
            "rise_hyper_bytes": round(line_bytes * dcqcn.rise_hyper),
            "rate_min_bytes": max(1, round(line_bytes * dcqcn.rate_min)),
            "fast_recovery_steps": dcqcn.fast_recovery_steps,
            "alpha_gain_shift": dcqcn.alpha_gain_shift,
            "mtu_bytes": mtu_bytes,
            "window_packets": transport.window_packets,
            "ack_every": transport.ack_every,
            "reorder_packets": transport.reorder_packets,
            "selective": int(transport.transport == "sr"),
            "elided": int(self.fabric.elided),
            "dcqcn": int(transport.cc == "dcqcn"),
            "paced": int(transport.cc == "dcqcn" and self.fabric.paced),
            "icrc": int(transport.icrc),
        }

    def _line_bps(self) -> int:
        """The fastest NIC's rate. Ports to where nothing is marked (scale-up) count only where there is no other."""
        ports = self.fabric.ports
        nics = [ports[nic] for nic in self._nics]
        marked = [nic for nic in nics if (queue := ports[nic.peer].queue) and queue.ecn]
        return max(nic.rate_bps for nic in marked or nics)

    def _pack(self, layout, end: End) -> bytes:
        peer, port = self.work.peer_of(end), self.fabric.ports[end.nic]
        words = head_words(port, self.fabric.ports[end.peer], end.qpn, peer.qpn)
        line_bytes = self.fabric.settings[end.nic].rate_bytes
        start_bytes = round(line_bytes * self.transport.dcqcn.rate_start)
        incoming = self.work.messages.sizes[peer.requests[0]] if peer.requests else 0
        mtu_bytes = self.fabric.plan.topology.path_mtu_bytes
        return layout.pack(
            head=words, head_sum=head_sum(words), ifindex=port.ifindex, server=self._servers[end.nic.node],
            send_next=end.request_first, send_end=end.request_end,
            receive_first=peer.request_first, receive_next=peer.request_first, receive_end=peer.request_end,
            receive_psn_end=-(-incoming // mtu_bytes) or 0xFFFFFFFF >> 1,
            rate_max_bytes=line_bytes, rate_bytes=start_bytes, rate_target_bytes=start_bytes, alpha=1 << 16,
        )

    def _attach(self, server: str) -> None:
        batch = Batch()
        for nic in self._nics:
            if nic.node == server:
                self._hook(batch, self.fabric.ports[nic].ifindex, "nic", str(nic))
        period_ns = max(1, self.fabric.scale.kernel_ns(self.transport.rto_ns) // TICKS_PER_RTO)
        pacer.install(batch, LO_IFINDEX, TICK_BYTES, period_ns, f"{server}:lo")
        self._hook(batch, LO_IFINDEX, "tick", f"{server}:lo")
        self.fabric.netlink(server).run(batch)

    def _hook(self, batch: Batch, ifindex: int, program: str, what: str) -> None:
        add_clsact(batch, ifindex, what)
        attach(batch, ifindex, INGRESS, self._loaded.program_fd(program), program, what)

    def _detach(self, server: str) -> None:
        batch = Batch()
        for nic in self._nics:
            if nic.node == server:
                remove_clsact(batch, self.fabric.ports[nic].ifindex, str(nic))
        remove_clsact(batch, LO_IFINDEX, f"{server}:lo")
        pacer.remove(batch, LO_IFINDEX, f"{server}:lo")
        with suppress(FabricError):  # what was never attached, because attaching failed half-way
            self.fabric.netlink(server).run(batch)
