"""Open-loop senders: frames made once, kept in each NIC's queue ahead of its rate limiter, with queue depths sampled.

One thread serves every sender. The pace is the kernel's (the NIC's TBF), not Python's: a timer tops each NIC's queue up
to QUEUED_FRAMES before it can run empty. The socket's own back-pressure would not do: the netem of a link with delay takes
packets off the sender's account at once. A second timer samples the watched queues; the run ends when all are empty.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from pyroute2.netlink.rtnl import TC_H_ROOT

from emu.errors import FabricError
from emu.fabric.depth import DepthProbe
from emu.fabric.fabric import Fabric
from emu.fabric.netlink import Netlink
from emu.fabric.queue import tbf_parent
from emu.nic.batch_socket import BatchSocket
from emu.nic.timer import Timer
from emu.topology.model import Port

STALL_S = 5.0  # kernel time without progress after which a run is given up
QUEUED_FRAMES = 512
REFILL_FRAMES = 128  # the fastest NIC sends so many between two refills
REFILL_MIN_NS = 20_000


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
        senders = [_Sender(fabric, injection, closing) for injection in injections]
        watched = {port: _Watched(fabric, port, closing) for port in watch}
        refill = closing.enter_context(Timer(max(REFILL_MIN_NS, min(sender.refill_ns for sender in senders))))
        sample = closing.enter_context(Timer(sample_ns))
        return _Loop(senders, watched, refill, sample, on_progress).run()


class _Watched:
    """One port's queue: `depth` is the TBF's, `backlog` also what is under way on a link with delay."""

    def __init__(self, fabric: Fabric, port: Port, closing: ExitStack) -> None:
        netlink = closing.enter_context(Netlink(fabric.netlink(port.node).netns))  # its answers mix with no others
        ifindex, parent = fabric.ports[port].ifindex, tbf_parent(fabric.settings[port])
        self._tbf = DepthProbe(netlink, ifindex, parent)
        self._netem = DepthProbe(netlink, ifindex) if parent != TC_H_ROOT else None

    def depth(self) -> int:
        return self._tbf.read()

    def backlog(self) -> int:
        """Older kernels leave the TBF's bytes out of the netem's, newer ones count them there too."""
        return self._tbf.read() + (self._netem.read() if self._netem else 0)


class _Sender:
    """A NIC with its socket and its queue."""

    def __init__(self, fabric: Fabric, injection: Injection, closing: ExitStack) -> None:
        self.nic = injection.nic
        self._frame_bytes = max(map(len, injection.frames))
        self._queue = _Watched(fabric, injection.nic, closing)
        netns = fabric.netlink(injection.nic.node).netns
        self.socket = BatchSocket(netns, injection.nic.ifname, injection.frames, injection.count)
        closing.callback(self.socket.close)
        self.refill_ns = REFILL_FRAMES * self._frame_bytes * 1_000_000_000 // fabric.settings[injection.nic].rate_bytes
        self.backlog = self._queue.backlog

    def top_up(self) -> int:
        """Send as many frames as there is room for in the queue's head start; how many went."""
        before = self.socket.sent
        room = QUEUED_FRAMES - self.backlog() // self._frame_bytes
        while room > 0 and not self.socket.done:
            sent = self.socket.send_batch(room)
            if not sent:
                break
            room -= sent
        return self.socket.sent - before


class _Loop:
    """The state of one run between two events."""

    def __init__(self, senders: Sequence[_Sender], watched: dict[Port, _Watched], refill: Timer, sample: Timer,
                 on_progress: Callable[[int], None]) -> None:
        self._senders, self._watched, self._on_progress = senders, watched, on_progress
        self._refill_timer, self._sample_timer = refill, sample
        self._sent = Sent(depths={port: [] for port in watched})
        self._start_ns = time.monotonic_ns()
        self._last_change_ns, self._last_state = self._start_ns, (0, 0)

    def run(self) -> Sent:
        with select.epoll() as poll:
            for timer in (self._refill_timer, self._sample_timer):
                poll.register(timer, select.EPOLLIN)
            self._refill()
            while not self._finished():
                ready = {fd for fd, _ in poll.poll()}
                if self._sample_timer.fileno() in ready:
                    self._sample()
                if self._refill_timer.fileno() in ready:
                    self._refill()
        self._sent.packets = {sender.nic: sender.socket.sent for sender in self._senders}
        self._sent.elapsed_ns = time.monotonic_ns() - self._start_ns
        return self._sent

    def _refill(self) -> None:
        self._refill_timer.expirations()
        for sender in self._senders:
            if not sender.socket.done:
                self._on_progress(sender.top_up())

    def _sample(self) -> None:
        self._sample_timer.expirations()
        now_ns = time.monotonic_ns() - self._start_ns
        for port, samples in self._sent.depths.items():
            samples.append((now_ns, self._watched[port].depth()))

    def _finished(self) -> bool:
        """Everything has been sent and has left every queue."""
        unsent = sum(sender.socket.count - sender.socket.sent for sender in self._senders)
        if unsent:
            self._watch_for_stall(unsent, 0)
            return False
        backlog = sum(queue.backlog() for queue in (*self._watched.values(), *self._senders))
        self._watch_for_stall(unsent, backlog)
        return not backlog

    def _watch_for_stall(self, unsent: int, backlog: int) -> None:
        now_ns = time.monotonic_ns()
        if (unsent, backlog) != self._last_state:
            self._last_state, self._last_change_ns = (unsent, backlog), now_ns
        elif now_ns - self._last_change_ns > STALL_S * 1e9:
            raise FabricError(f"nothing moved for {STALL_S:g} s: {unsent} packets unsent, {backlog} bytes queued")
