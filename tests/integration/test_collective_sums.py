"""Promises of collectives with real numbers over a live fabric: every rank's buffer is what numpy says, and by the wire only.

Packets are crafted, placed by their own address, and counted by the kernel in every queue that they pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest

from emu.collectives.catalogue import COLLECTIVES, schedule
from emu.collectives.placement import Placement
from emu.collectives.schedule import Schedule
from emu.collectives.traffic import traffic
from emu.errors import FabricError
from emu.fabric.fabric import Fabric
from emu.measure.counters import Snapshot, difference, snapshot
from emu.nic.carry import Carried, carry
from emu.nic.cluster import Cluster
from emu.nic.port_socket import PortSocket, PortSockets
from emu.nic.ways import ways
from emu.roce.psn import packets_of_message
from emu.scale import Scale
from emu.topology.model import Port
from emu.topology.plan import make_plan
from emu.topology.queue_profile import QueueProfile
from emu.topology.scale_up import ScaleUp, with_scale_up
from emu.topology.scale_up_profiles import profile
from emu.topology.spine_leaf import SpineLeaf
from emu.units import gbps, mib
from tests.closed_forms import closed_form
from tests.integration.collective_numbers import Numbers

pytestmark = pytest.mark.needs_root
MTU_BYTES = 256
NVLINK = replace(profile("nvlink4"), link_ns=0, switch_ns=0)  # delays would need netem
SCALE = Scale(dilation=1000, catch_up_ns=500_000)
IN_NVSWITCH, IN_LEAF = {"nvls", "nvls_tree"}, {"collnet_direct", "collnet_chain"}
OVER_SCALE_UP = IN_NVSWITCH | IN_LEAF | {"all_to_all_pxn", "all_to_all_burst_pxn"}
RING = {"channels": 2, "chunk_bytes": 2 * MTU_BYTES, "slice_bytes": MTU_BYTES}
TREE = {"channels": 2, "chunk_bytes": 4 * MTU_BYTES}
OPTIONS = {
    **dict.fromkeys(("ring", "reduce_scatter", "all_gather"), RING), "broadcast": {"channels": 2, "slice_bytes": 2 * MTU_BYTES},
    **dict.fromkeys(("tree", *IN_NVSWITCH, *IN_LEAF), TREE), "double_tree": TREE | {"channels": 1},
}


@dataclass(frozen=True)
class Shape:
    """A cluster, and the numbers of its servers that collectives are run over."""

    servers: tuple[int, ...]
    gpus: int
    leaf_down: int
    scale_up: str = "switch"

    @property
    def domains(self) -> ScaleUp | None:
        if self.gpus == 1 or self.scale_up == "none":
            return None
        return ScaleUp(kind=self.scale_up, technology=NVLINK, gpus_per_server=self.gpus, domain_gpus=self.gpus)

    @property
    def cluster(self) -> Cluster:
        return Cluster(gpus_per_server=self.gpus, scale_up=self.domains)

    def placements(self, name: str) -> list[Placement]:
        """None where the cluster has not got what the algorithm needs."""
        switched = self.gpus > 1 and self.scale_up == "switch"
        lacks = (name in IN_NVSWITCH and not switched, name in OVER_SCALE_UP and self.scale_up == "none",
                 name in IN_LEAF and self.leaf_down < max(self.servers))
        if any(lacks):
            return []
        fitting = [servers for servers in self.servers if servers * self.gpus > 1 and (name != "nvls" or servers == 1)]
        return [Placement(servers * self.gpus, self.gpus, scale_up=self.scale_up != "none") for servers in fitting]

    def fabric(self) -> Fabric:
        servers = max(self.servers)
        rails = SpineLeaf(servers=servers, gpus_per_server=self.gpus, wiring="rail", leaf_down=self.leaf_down, leaf_up=2,
                          rate_bps=gbps(400), queue=QueueProfile(buffer_bytes=mib(16)), path_mtu_bytes=MTU_BYTES).topology()
        topology = with_scale_up(rails, self.domains) if self.domains else rails
        return Fabric(make_plan(topology, seed=1), SCALE)


PAIRS, THREES = "2 GPUs a server", "3 GPUs a server"
SHAPES = {
    "1 GPU a server": Shape((2, 3, 4, 5, 7), 1, 7),
    PAIRS: Shape((1, 2, 3, 4), 2, 4),
    "2 GPUs, over the spines": Shape((3,), 2, 2),
    "2 GPUs without scale-up": Shape((1, 2, 3), 2, 3, scale_up="none"),
    THREES: Shape((1, 3), 3, 3),
    "3 GPUs in a full mesh": Shape((2,), 3, 2, scale_up="full_mesh"),
    "4 GPUs in two halves": Shape((1,), 4, 1, scale_up="hybrid_mesh"),
}
CASES = [(where, name) for where, shape in SHAPES.items() for name in COLLECTIVES if shape.placements(name)]


@dataclass(frozen=True)
class Live:
    shape: Shape
    sockets: PortSockets

    @property
    def fabric(self) -> Fabric:
        return self.sockets.fabric

    def run(self, collective: Schedule, numbers: Numbers, **options: float) -> tuple[Carried, Snapshot]:
        """And what the kernel counted meanwhile."""
        before = snapshot(self.fabric)
        carried = carry(self.sockets, collective, self.shape.cluster, numbers.contribution, numbers.add, **options)
        return carried, difference(before, snapshot(self.fabric))

    def peer(self, port: Port) -> Port:
        return self.fabric.ports[port].peer

    def queues(self, source: Port, target: Port) -> int:
        """That a packet passes: of a cable one, under one switch two, over leaf, spine and leaf four."""
        if self.peer(source) == target:
            return 1
        return 2 if self.peer(source).node == self.peer(target).node else 4


@pytest.fixture(scope="module")
def live(request) -> Iterator[Live]:
    shape = SHAPES[request.param]
    with shape.fabric() as fabric, PortSockets(fabric) as sockets:
        yield Live(shape, sockets)


def made(name: str, place: Placement, less_bytes: int = 0) -> Schedule:
    """Of such a size that every packet is full, or `less_bytes` less."""
    size_bytes = 2 * place.ranks * place.gpus_per_server * MTU_BYTES
    return schedule(name, place, size_bytes - less_bytes, **OPTIONS.get(name, {}))


def checked(live: Live, collective: Schedule, dtype: type) -> Carried:
    """Run it and hold numbers and packets against what they have to be."""
    what, numbers = f"{collective.name} on {collective.placement}", Numbers(collective, dtype)
    carried, delta = live.run(collective, numbers)
    wrong = numbers.wrong_ranks(carried.state)
    assert not wrong, f"{what}: ranks {wrong} do not have what numpy has"
    sent, arrived, passed = expected_packets(live, collective)
    assert (carried.sent, carried.arrived, carried.refused) == (sent, arrived, {}), f"{what}: {carried.sent}, want {sent}"
    for port, packets in arrived.items():
        seen = delta[live.peer(port)].sent_packets
        assert seen == packets, f"{what}: the kernel counted {seen} packets on the way into {port}, want {packets}"
    hops, dropped = sum(port.sent_packets for port in delta.values()), sum(port.dropped_packets for port in delta.values())
    assert (hops, dropped) == (passed, 0), f"{what}: {hops} packets left queues and {dropped} were dropped, want {passed}, 0"
    return carried


def expected_packets(live: Live, collective: Schedule) -> tuple[Counter[Port], Counter[Port], int]:
    """Sent and taken in by each port, and passed by all queues together."""
    sent, arrived, passed = Counter(), Counter(), 0
    for transfer, way in zip(collective.transfers, ways(collective, live.shape.cluster, live.fabric.plan), strict=True):
        packets = packets_of_message(transfer.size_bytes, MTU_BYTES)
        for source, target in way:
            sent[source] += packets
            arrived[target] += packets
            passed += packets * live.queues(source, target)
    return sent, arrived, passed


def on(*shapes: str):
    """The test's fabrics; scope=module, so that tests of one share it."""
    return pytest.mark.parametrize("live", shapes, indirect=True, scope="module")


def relayed_bytes(collective: Schedule) -> int:
    """That go over scale-up only to reach another GPU's NIC."""
    inside = sum(transfer.size_bytes for transfer in collective.transfers if transfer.rails is None)
    return traffic(collective).scale_up_bytes - inside


@pytest.mark.parametrize(("live", "name"), CASES, indirect=["live"], scope="module")
def test_every_rank_ends_with_what_numpy_says_and_the_closed_form_of_packets_went_over_the_wire(live, name):
    for place in live.shape.placements(name):
        collective = made(name, place)
        carried = checked(live, collective, np.int64)
        _, total_bytes = closed_form(name, place, collective.size_bytes)
        packets, rest = divmod(total_bytes + relayed_bytes(collective), MTU_BYTES)
        got = carried.sent.total()
        if live.shape.scale_up == "hybrid_mesh":  # whose relays no formula has
            assert got >= packets, f"{name} on {place}: {got} packets, want {packets} or more"
        else:
            assert (got, rest) == (packets, 0), f"{name} on {place}: {got} packets, want {packets}"


@on(PAIRS)
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(("dtype", "less_bytes"), [(np.float64, 0), (np.uint8, 37)], ids=["float64", "bytes of odd lengths"])
def test_other_numbers_and_lengths_end_right_as_well(live, name, dtype, less_bytes):
    collective = made(name, live.shape.placements(name)[-1], less_bytes)
    checked(live, collective, dtype)
    padded = sum(transfer.size_bytes % 4 > 0 for transfer in collective.transfers)
    assert bool(padded) is bool(less_bytes), f"{padded} of {len(collective.transfers)} messages end in padding: no test"


@on(THREES)
@pytest.mark.parametrize("name", sorted(IN_LEAF))
def test_a_leaf_that_adds_gets_a_share_from_each_nic_and_sends_its_sum_back_once(live, name):
    collective = schedule(name, Placement(9, 3), 9 * 3 * MTU_BYTES, channels=3, chunk_bytes=MTU_BYTES)
    numbers = Numbers(collective, np.int64)
    carried, delta = live.run(collective, numbers)
    share = collective.size_bytes // 3 // MTU_BYTES
    nics = [port for port in carried.sent if port.ifname.startswith("rail")]
    seen = {str(nic): (delta[nic].sent_packets, delta[live.peer(nic)].received_packets, delta[live.peer(nic)].sent_packets,
                       delta[nic].received_packets) for nic in nics}
    assert len(nics) == 9 and set(seen.values()) == {(share,) * 4}, f"packets up and down, want {share}: {seen}"
    assert not numbers.wrong_ranks(carried.state) and {live.peer(nic).node for nic in nics} == {"leaf0", "leaf1", "leaf2"}


@on(THREES)
def test_a_gpu_sends_over_an_nvswitch_its_buffer_and_an_nth_of_the_sum(live):
    collective = schedule("nvls", Placement(3, 3), 3 * 4 * MTU_BYTES)
    numbers = Numbers(collective, np.int64)
    carried, delta = live.run(collective, numbers)
    seen = {str(port): (delta[port].sent_packets, delta[port].received_packets) for port in carried.sent if port.node == "srv0"}
    assert len(seen) == 3 and set(seen.values()) == {(16, 16)}, f"packets out and in, want (1 + 1/3) x 12: {seen}"
    assert not numbers.wrong_ranks(carried.state)


def damaged(monkeypatch: pytest.MonkeyPatch, number: int, change: Callable[[bytes], list[bytes]]) -> None:
    """From now on the frame sent as number `number` becomes what `change` makes of it."""
    send, numbers = PortSocket.send, count()

    def send_damaged(self: PortSocket, frames: list[bytes]) -> None:
        send(self, [sent for frame in frames for sent in (change(frame) if next(numbers) == number else [frame])])

    monkeypatch.setattr(PortSocket, "send", send_damaged)


def flipped(frame: bytes, at: int) -> list[bytes]:
    spoilt = bytearray(frame)
    spoilt[at] ^= 1
    return [bytes(spoilt)]


@on("2 GPUs, over the spines")
@pytest.mark.parametrize("at", [53, 60, 70, 200, -1], ids=["PSN", "address", "first byte", "inner byte", "iCRC"])
def test_a_flipped_bit_is_refused_by_the_icrc_not_placed_and_named(live, at, monkeypatch):
    collective = schedule("ring", Placement(6, 2), 6 * 3 * MTU_BYTES)
    damaged(monkeypatch, 7, lambda frame: flipped(frame, at))
    with pytest.raises(FabricError) as report:
        live.run(collective, Numbers(collective, np.int64))
    said = str(report.value)
    assert f"lacks {MTU_BYTES} of {3 * MTU_BYTES} bytes at " in said and "refused 1 corrupted" in said, said
    assert "of 60 transfers have not arrived" in said and "on the way" not in said, said


@on("2 GPUs, over the spines")
def test_a_lost_packet_is_missed_and_named(live, monkeypatch):
    collective = schedule("ring", Placement(6, 2), 6 * 3 * MTU_BYTES)
    damaged(monkeypatch, 7, lambda frame: [])
    with pytest.raises(FabricError) as report:
        live.run(collective, Numbers(collective, np.int64), stall_s=0.2)
    said = str(report.value)
    assert f"lacks {MTU_BYTES} of {3 * MTU_BYTES} bytes at " in said and "1 packets on the way" in said, said


@on(PAIRS)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_transfer_left_out_is_found_in_the_sum_whichever_it_is(live, name):
    whole = schedule(name, live.shape.placements(name)[0 if name == "nvls" else 1], 4 * 8 * MTU_BYTES)
    unnoticed = []
    for left_out in {0, len(whole.transfers) // 2, len(whole.transfers) - 1}:
        collective = without(whole, left_out)
        numbers = Numbers(collective, np.int64)
        carried, _ = live.run(collective, numbers)
        if not numbers.wrong_ranks(carried.state):
            unnoticed.append(left_out)
    assert not unnoticed, f"{name}: all ranks are right without transfers {unnoticed} of {len(whole.transfers)}"


def without(collective: Schedule, index: int) -> Schedule:
    """Who waits for the transfer no longer does."""
    kept = [
        transfer._replace(after=tuple(before - (before > index) for before in transfer.after if before != index))
        for number, transfer in enumerate(collective.transfers) if number != index
    ]
    return replace(collective, transfers=kept)
