"""Small reads and writes of other GPUs' memory, at a stated load: how long each takes.

Every GPU accesses a random other one of its domain at random moments (gaps as good as exponential), whether or not earlier
accesses have ended. A write has ended when its data are there; a read is a request of REQUEST_BYTES and an answer with the
data, as load and store are on a scale-up link. Load is the share of a GPU's bandwidth that the frames take, headers and
acknowledgements included; they are RoCE's, which are longer than any scale-up link's, so that the share of data is lower here.

A frame finds a shaper's burst of one full frame, so that the first frame in a queue does not wait for its own length.
Source: the reference article on memory semantics; UALink 200G 1.0: requests of 64 to 256 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from emu.errors import UsageError, unknown
from emu.fabric.fabric import Fabric
from emu.measure.percentile import percentile
from emu.measure.transfers import Transferred, run_messages
from emu.nic.transport import Transport
from emu.nic.work_request import Message
from emu.topology.frame import ACK_BYTES, frame_bytes, frames_bytes
from emu.topology.metronome import metronome
from emu.topology.scale_up import ScaleUp

ACCESSES = ("read", "write")
REQUEST_BYTES = 16
BEAT_BYTES = 512        # of a metronome's message, on average: long against its headers, so that gaps come out exponential
WARM_UP_SHARE = 0.3     # of the accesses: the metronomes fill their windows, the first answers arrive


@dataclass(frozen=True, kw_only=True)
class Accesses:
    """`count` from each GPU, each of `size_bytes`, at `load` (share of its bandwidth, 0 … 1)."""

    access: str
    size_bytes: int
    load: float
    count: int
    seed: int

    def __post_init__(self) -> None:
        if self.access not in ACCESSES:
            raise unknown("access", self.access, ACCESSES)
        if not 0 < self.load <= 1:
            raise UsageError(f"load={self.load:g}; want more than 0, and 1 at most")

    @property
    def messages(self) -> tuple[tuple[bool, int], ...]:
        """(towards the accessed GPU, bytes) of each message of an access."""
        return ((True, self.size_bytes),) if self.access == "write" else ((True, REQUEST_BYTES), (False, self.size_bytes))

    def wire_bytes(self, scale_up: ScaleUp) -> float:
        """What an access puts on links of GPUs, on average over all targets."""
        others = [gpu for gpu in scale_up.domain(0) if gpu]
        hops = sum(len(scale_up.hops(0, gpu)) for gpu in others) / len(others)
        return hops * sum(frame_bytes(size) + ACK_BYTES for _, size in self.messages)

    def gap_ns(self, scale_up: ScaleUp) -> float:
        """Mean time between two accesses of a GPU, fabric ns."""
        return self.wire_bytes(scale_up) * 8e9 / (self.load * scale_up.technology.rate_bps)

    def metronome_bps(self, scale_up: ScaleUp, mtu_bytes: int) -> int:
        """The rate at which an average beat lasts an average gap."""
        beats = self.beats(0, mtu_bytes)
        mean_bytes = sum(frames_bytes(beat, mtu_bytes) for beat in beats) / len(beats)
        return round(mean_bytes * 8e9 / self.gap_ns(scale_up))

    def beats(self, gpu: int, mtu_bytes: int) -> list[int]:
        """Sizes of the messages of a GPU's metronome."""
        draw = random.Random(f"{self.seed}/beats/{gpu}")
        return [max(1, min(round(draw.expovariate(1 / BEAT_BYTES)), 16 * mtu_bytes)) for _ in range(self.count)]


@dataclass(frozen=True)
class Accessed:
    """The run; `indexes` are (metronome's message, last message) of each access, by GPU."""

    transferred: Transferred
    accesses: Accesses
    scale_up: ScaleUp
    indexes: dict[int, list[tuple[int, int]]]

    @cached_property
    def window(self) -> tuple[int, int]:
        """Kernel ns from the end of the last GPU's warm-up, its answer included, to the first GPU's last access.

        UsageError if there were too few accesses for any time between.
        """
        done, warm_up = self.transferred.done_ns, int(self.accesses.count * WARM_UP_SHARE)
        first = max(done[own[warm_up][1]] for own in self.indexes.values())
        last = min(done[own[-1][0]] for own in self.indexes.values())
        if first >= last:
            raise UsageError(f"accesses={self.accesses.count} of each GPU are over before the warm-up is answered; want more")
        return first, last

    @cached_property
    def latencies_ns(self) -> list[float]:
        """Fabric ns of each access that began in the window, ascending."""
        done, (first, last) = self.transferred.done_ns, self.window
        begun_ended = ((done[beat], done[end]) for own in self.indexes.values() for beat, end in own)
        scale = self.transferred.fabric.scale
        return sorted(scale.fabric_ns(ended - begun) for begun, ended in begun_ended if first <= begun <= last)

    @property
    def load(self) -> float:
        """Of the GPUs' bandwidth, what the accesses that ended in the window took."""
        done, (first, last) = self.transferred.done_ns, self.window
        ended = sum(first < done[end] <= last for own in self.indexes.values() for _, end in own)
        used_bits = 8 * ended * self.accesses.wire_bytes(self.scale_up)
        whole_bps = self.scale_up.domain_gpus * self.scale_up.technology.rate_bps
        return used_bits / (whole_bps * self.transferred.fabric.scale.fabric_ns(last - first) / 1e9)

    def row(self) -> dict[str, object]:
        ways, found = len(self.accesses.messages), self.latencies_ns
        idle_ns = sorted(ways * self.scale_up.one_way_ns(0, gpu) for gpu in self.scale_up.domain(0) if gpu)
        return {
            "load_measured": self.load, "idle_min_ns": idle_ns[0], "idle_p50_ns": percentile(idle_ns, 0.5),
            "min_ns": found[0], "p50_ns": percentile(found, 0.5), "p99_ns": percentile(found, 0.99),
            "p999_ns": percentile(found, 0.999), "max_ns": found[-1], "accesses": len(found),
        }


def measure(fabric: Fabric, scale_up: ScaleUp, accesses: Accesses, transport: Transport) -> Accessed:
    """Run them in the first domain of a fabric that has metronomes of `accesses.metronome_bps`."""
    messages: list[Message] = []
    indexes = {gpu: [*_append(messages, fabric, scale_up, accesses, gpu)] for gpu in scale_up.domain(0)}
    return Accessed(run_messages(fabric, messages, transport), accesses, scale_up, indexes)


def _append(
    messages: list[Message], fabric: Fabric, scale_up: ScaleUp, accesses: Accesses, gpu: int
) -> Iterator[tuple[int, int]]:
    """The accesses of a GPU; (index of the beat, of the last message) of each."""
    clock = metronome(*divmod(gpu, scale_up.gpus_per_server))
    draw = random.Random(f"{accesses.seed}/targets/{gpu}")
    others = [other for other in scale_up.domain(gpu) if other != gpu]
    for beat in accesses.beats(gpu, fabric.plan.topology.path_mtu_bytes):
        messages.append(Message(source=clock[0], target=clock[1], size_bytes=beat))
        begun, after = len(messages) - 1, (len(messages) - 1,)
        target = draw.choice(others)
        for towards, size_bytes in accesses.messages:
            pair = (gpu, target) if towards else (target, gpu)
            channel = 2 * (gpu * scale_up.domain_gpus + target) + towards
            for source, at in scale_up.hops(*pair):
                messages.append(Message(source=source, target=at, size_bytes=size_bytes, after=after, channel=channel))
                after = (len(messages) - 1,)
        yield begun, after[0]
