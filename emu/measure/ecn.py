"""One congested queue, measured whole: three ECN figures, depth, rate, and the checks that make them believable.

Marked is the queue's figure, CE delivered the receiver's, dropped the queue's again: a packet marked and then dropped
counts in the first and the last. Times and rates of the receiver are kernel time; reports divide by the dilation.
"""

from __future__ import annotations

from emu.fabric import host, red_law
from emu.fabric.fabric import Fabric
from emu.fabric.marker import bucket_bytes
from emu.measure import conservation, fidelity, marking
from emu.measure.counters import difference, snapshot
from emu.measure.depth import quantile
from emu.measure.metric import Check, Metric
from emu.nic.crafted import Sent
from emu.nic.receiver import Receivers
from emu.topology.model import Port


class Measured:
    """Snapshots at both ends of a block; `sent` is set inside it. `receiver` is the NIC behind the watched queue."""

    sent: Sent

    def __init__(self, fabric: Fabric, receiver: Port, receivers: Receivers) -> None:
        self._fabric, self._receiver, self._receivers = fabric, receiver, receivers
        self.queue = fabric.ports[receiver].peer

    def __enter__(self) -> Measured:
        self._load = host.load()
        self._before = snapshot(self._fabric)
        self._arrived = self._receivers.read()[self._receiver]
        self._found = self._fabric.depths_found(self.queue)
        return self

    def __exit__(self, *_: object) -> None:
        arrived = self._receivers.read()[self._receiver]
        self.delta = difference(self._before, snapshot(self._fabric))
        self._load_after = host.load()
        self._found_after = self._fabric.depths_found(self.queue)
        self.delivered_packets = arrived.packets - self._arrived.packets
        self.delivered_bytes = arrived.bytes - self._arrived.bytes
        self.ce_packets = arrived.ce_packets - self._arrived.ce_packets
        self.elapsed_ns = arrived.last_ns - (self._arrived.last_ns or arrived.first_ns)

    @property
    def reached_bps(self) -> float:
        """Receiver's rate in kernel time, between its first and its last packet."""
        if self.delivered_packets < 2 or not self.elapsed_ns:
            return 0.0
        return self.delivered_bytes * (1 - 1 / self.delivered_packets) * 8e9 / self.elapsed_ns

    def row(self) -> dict[str, object]:
        """One line of a table, keys as in the contract."""
        counters, port = self.delta[self.queue], self._fabric.ports[self.queue]
        depths = [size for _, size in self.sent.depths[self.queue]]
        return {
            "queue": str(self.queue),
            "offered_packets": counters.offered_packets,
            "delivered_packets": self.delivered_packets,
            "delivered_bytes": self.delivered_bytes,
            "ecn_marked_packets": counters.marked_packets,
            "ce_delivered_packets": self.ce_packets,
            "ce_share": self.ce_packets / max(1, self.delivered_packets),
            "dropped_packets": counters.dropped_packets,
            "queued_packets": counters.queued_packets,
            "depth_max_bytes": max(depths, default=0),
            "depth_p99_bytes": quantile(depths, 0.99),
            "depth_samples": len(depths),
            "nominal_gbps": port.rate_bps / 1e9,
            "emulated_gbps": self._fabric.scale.kernel_bps(port.rate_bps) / 1e9,
            "rates": f"{port.rate_bps / 1e9:g}/{self._fabric.scale.kernel_bps(port.rate_bps) / 1e9:g}",
            "reached_gbps": self.reached_bps / 1e9,
            "completion_us": self._fabric.scale.fabric_ns(self.elapsed_ns) / 1000,
        }

    def metrics(self) -> list[Metric]:
        """The contract's figures of this queue."""
        row = self.row()
        units = {"completion_us": "us", "delivered_bytes": "bytes"}
        names = ("ecn_marked_packets", "ce_delivered_packets", "dropped_packets", "delivered_packets", "delivered_bytes",
                 "completion_us")
        return [Metric(name, row[name], units.get(name, "packets")) for name in names]

    def checks(self, asked_bps: float) -> list[Check]:
        """Fidelity of the run; `asked_bps` is what the receiver should see, in nominal bit/s."""
        checks = [
            *conservation.checks(self._fabric.plan, self.delta),
            self._all_counted(),
            self._law(),
            fidelity.rate_check("receiver's rate off by", self._fabric.scale.kernel_bps(round(asked_bps)), self.reached_bps),
            fidelity.knobs_check(self._fabric),
            fidelity.backlog_check(self._load, self._load_after),
        ]
        if not self._fabric.scale.exact:
            checks.append(fidelity.cpu_check(self._load, self._load_after))
        return checks

    def _all_counted(self) -> Check:
        """The NIC's program saw each packet that the NIC received."""
        missed = self.delta[self._receiver].received_packets - self.delivered_packets
        return Check("packets the receiver did not count", missed, 0, ok=missed == 0, unit="packets")

    def chances(self) -> list[float]:
        """P(mark) by the law for every packet, at the depth it found; empty if this marker keeps no account of depths."""
        found = [after - before for before, after in zip(self._found, self._found_after, strict=True)]
        ecn = self._fabric.ports[self.queue].queue.ecn
        return marking.found_in_buckets(ecn, found, bucket_bytes(ecn.kmax_bytes))

    @property
    def law_deviation(self) -> float:
        """How far this kernel's marker is known to stay from the law, as a probability; 0 for the BPF marker."""
        fit = self._fabric.settings[self.queue].red
        return fit.deviation if fit else 0.0

    def _law(self) -> Check:
        off = self.law_deviation
        limit = red_law.limit(self._fabric.ports[self.queue].queue.ecn)
        note = "expected share marked against (q-Kmin)/(Kmax-Kmin)*Pmax, largest on the ramp"
        return Check("marking law off by", round(off, 4), round(limit, 4), ok=off <= limit, unit="probability",
                     note=f"{note}; marker {self._fabric.marker}")
