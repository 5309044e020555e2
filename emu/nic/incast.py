"""N NICs send to one, open loop: the frames, the pace, and what came of them at the receiver's port."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emu.errors import UsageError
from emu.fabric.fabric import Fabric
from emu.nic.crafted import Injection, Sent, run_open_loop
from emu.roce.flow import Flow
from emu.topology.model import Port
from emu.topology.plan import PortPlan

FIRST_QPN = 0x11
FRAMES_IN_A_CIRCLE = 256  # one NCCL message of 1 MiB at a 4,096-byte MTU; its addresses repeat, as a reused buffer's do
DEPTH_SAMPLES = 1000


def flow_between(source: PortPlan, target: PortPlan, qpn: int) -> Flow:
    """The RoCE connection of one sender."""
    return Flow(src_mac=source.mac, dst_mac=source.peer_mac, src_ip=source.address, dst_ip=target.address,
                src_qpn=qpn, dst_qpn=qpn, rkey=qpn)


def inject(
    fabric: Fabric, senders: Sequence[Port], receiver: Port, packets_each: int, load: float, qps: int = 1,
    on_progress: Callable[[int], None] = lambda _packets: None,
) -> Sent:
    """Offer `load` times the receiver's link rate in equal shares; returns when every queue is empty again.

    Each sender takes its `qps` queue pairs in turn, a packet each.

    UsageError if a share is more than a sender's own link carries.
    """
    target = fabric.ports[receiver]
    share_bps = round(load * target.rate_bps / len(senders))
    injections = []
    for number, sender in enumerate(senders):
        source = fabric.ports[sender]
        if share_bps > source.rate_bps:
            fits = len(senders) * source.rate_bps / target.rate_bps
            raise UsageError(f"load={load:g} over {len(senders)} senders is {share_bps / 1e9:g} Gb/s each, more than their "
                             f"{source.rate_bps / 1e9:g} Gb/s links; want load <= {fits:g}")
        fabric.limit_nic(sender, share_bps)
        frames = circle(fabric, sender, receiver, range(FIRST_QPN + number * qps, FIRST_QPN + (number + 1) * qps))
        injections.append(Injection(nic=sender, frames=frames, count=packets_each))
    return run_open_loop(fabric, injections, [target.peer], sample_period_ns(fabric, senders, receiver, packets_each, load),
                         on_progress)


def circle(fabric: Fabric, sender: Port, receiver: Port, qpns: Sequence[int]) -> list[bytes]:
    """About FRAMES_IN_A_CIRCLE frames of the connections `qpns`, one of each in turn."""
    from emu.roce.packets import write_frames  # Scapy takes a second to import

    mtu, each = fabric.plan.topology.path_mtu_bytes, -(-FRAMES_IN_A_CIRCLE // len(qpns))
    flows = [flow_between(fabric.ports[sender], fabric.ports[receiver], qpn) for qpn in qpns]
    messages = [write_frames(flow, va=0, payload=each * mtu, path_mtu=mtu) for flow in flows]
    return [frame for turn in zip(*messages, strict=True) for frame in turn]


def sample_period_ns(fabric: Fabric, senders: Sequence[Port], receiver: Port, packets_each: int, load: float) -> int:
    """Kernel ns between depth samples: about DEPTH_SAMPLES over the time that the offered bytes take."""
    offered_bytes = len(senders) * packets_each * fabric.plan.frame_bytes
    rate_bps = fabric.scale.kernel_bps(fabric.ports[receiver].rate_bps) * min(load, 1.0)
    return max(100_000, round(offered_bytes * 8e9 / rate_bps / DEPTH_SAMPLES))
