"""Open-loop senders: frames made once, sent as fast as each NIC's rate limiter lets them, with queue depths sampled.

One thread serves every sender through epoll; the pace is the kernel's (the NIC's TBF), not Python's. A timer samples
the depth of the watched queues meanwhile, and the run ends when every queue on the way is empty again.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from emu.errors import FabricError
from emu.fabric.depth import DepthProbe
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.nic.batch_socket import BatchSocket
from emu.nic.timer import Timer
from emu.topology.model import Port

STALL_S = 5.0  # kernel time without progress after which a run is given up


@dataclass(frozen=True, kw_only=True)
class Injection:
    """`count` frames out of `nic`, taking `frames` in a circle."""

    nic: Port
    frames: Sequence[bytes]
    count: int


@dataclass
class Sent:
    """What one run did: frames handed to each NIC, samples (kernel ns since start, bytes) per watched queue."""

    packets: dict[Port, int] = field(default_factory=dict)
    depths: dict[Port, list[tuple[int, int]]] = field(default_factory=dict)
    elapsed_ns: int = 0


def run_open_loop(
    fabric: Fabric, injections: Sequence[Injection], watch: Sequence[Port], sample_ns: int,
    on_progress: Callable[[int], None] = lambda _packets: None,
) -> Sent:
    """Send everything, sample the depth of `watch` every `sample_ns` (kernel time), return when the queues are empty.

    FabricError after STALL_S of kernel time in which no frame left and no queue moved.
    """
    with ExitStack() as closing:
        senders = {i.nic: _socket(fabric, i, closing) for i in injections}
        drained = [*watch, *(i.nic for i in injections)]
        probes = {port: _probe(fabric, port, closing) for port in drained}
        timer = Timer(sample_ns)
        closing.callback(timer.close)
        return _Loop(senders, probes, watch, timer, on_progress).run()


class _Loop:
    """The state of one run between two events."""

    def __init__(self, senders: dict[Port, BatchSocket], probes: dict[Port, DepthProbe], watch: Sequence[Port],
                 timer: Timer, on_progress: Callable[[int], None]) -> None:
        self._senders, self._probes, self._timer, self._on_progress = senders, probes, timer, on_progress
        self._sent = Sent(depths={port: [] for port in watch})
        self._poll = select.epoll()
        self._poll.register(timer, select.EPOLLIN)
        for sender in senders.values():
            self._poll.register(sender, select.EPOLLOUT)
        self._by_fd = {sender.fileno(): sender for sender in senders.values()}
        self._last_change_ns = 0
        self._last_state: tuple[int, ...] = ()

    def run(self) -> Sent:
        start_ns = time.monotonic_ns()
        with self._poll:
            while True:
                events = self._poll.poll()
                for fd, _ in events:
                    if fd != self._timer.fileno():
                        self._serve(self._by_fd[fd])
                if any(fd == self._timer.fileno() for fd, _ in events) and self._sample(time.monotonic_ns() - start_ns):
                    break
        self._sent.packets = {nic: sender.sent for nic, sender in self._senders.items()}
        return self._sent

    def _serve(self, sender: BatchSocket) -> None:
        before = sender.sent
        sender.send_batch()
        self._on_progress(sender.sent - before)
        if sender.done:
            self._poll.unregister(sender)

    def _sample(self, now_ns: int) -> bool:
        """Record the watched depths; True when everything has been sent and has left every queue."""
        self._timer.expirations()
        for port, samples in self._sent.depths.items():
            samples.append((now_ns, self._probes[port].read()))
        self._sent.elapsed_ns = now_ns
        if all(sender.done for sender in self._senders.values()):
            backlog = {port: probe.read() for port, probe in self._probes.items()}
            if not any(backlog.values()):
                return True
            self._watch_for_stall(now_ns, tuple(backlog.values()), backlog)
        else:
            self._watch_for_stall(now_ns, tuple(sender.sent for sender in self._senders.values()), {})
        return False

    def _watch_for_stall(self, now_ns: int, state: tuple[int, ...], backlog: dict[Port, int]) -> None:
        if state != self._last_state:
            self._last_state, self._last_change_ns = state, now_ns
        elif now_ns - self._last_change_ns > STALL_S * 1e9:
            unsent = {str(nic): s.count - s.sent for nic, s in self._senders.items() if not s.done}
            held = {str(port): size for port, size in backlog.items() if size}
            raise FabricError(f"nothing moved for {STALL_S:g} s: unsent packets {unsent}, queued bytes {held}")


def _socket(fabric: Fabric, injection: Injection, closing: ExitStack) -> BatchSocket:
    netns = fabric.netlink(injection.nic.node).netns
    sender = BatchSocket(netns, injection.nic.ifname, injection.frames, injection.count)
    closing.callback(sender.close)
    return sender


def _probe(fabric: Fabric, port: Port, closing: ExitStack) -> DepthProbe:
    """A probe with a socket of its own, so that its answers can't mix with other requests."""
    netlink = closing.enter_context(Netlink(fabric.netlink(port.node).netns))
    return DepthProbe(netlink, fabric.ports[port].ifindex)
