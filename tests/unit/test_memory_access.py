"""Promises about the load of small accesses: what they put on the wire, and that a metronome beats as often as asked."""

from __future__ import annotations

import statistics

import pytest

from emu.errors import UsageError
from emu.measure.memory_access import Accesses
from emu.measure.percentile import percentile
from emu.topology.metronome import metronome, with_metronomes
from emu.topology.scale_up import ScaleUp, scale_up_alone
from emu.topology.scale_up_profiles import profile
from emu.units import gbps

MTU_BYTES, HEADERS, ACK = 256, 78, 62


def accesses(**changes) -> Accesses:
    return Accesses(**{"access": "read", "size_bytes": 64, "load": 0.5, "count": 4000, "seed": 1} | changes)


def domain(kind: str = "switch") -> ScaleUp:
    return ScaleUp(kind=kind, technology=profile("nvlink4"), gpus_per_server=4, domain_gpus=8)


def frames_bytes(size: int) -> int:
    return -(-size // 4) * 4 + HEADERS * -(-size // MTU_BYTES)


@pytest.mark.parametrize(
    ("access", "size", "kind", "wire_bytes"),
    [
        ("read", 64, "switch", 16 + 64 + 2 * (HEADERS + ACK)),
        ("read", 256, "full_mesh", 16 + 256 + 2 * (HEADERS + ACK)),
        ("write", 64, "switch", 64 + HEADERS + ACK),
        ("write", 256, "full_mesh", 256 + HEADERS + ACK),
        ("write", 256, "hybrid_mesh", (256 + HEADERS + ACK) * (4 + 2 * 3) / 7),
    ],
)
def test_an_access_is_charged_with_every_frame_it_puts_on_links(access, size, kind, wire_bytes):
    assert accesses(access=access, size_bytes=size).wire_bytes(domain(kind)) == pytest.approx(wire_bytes)


@pytest.mark.parametrize("load", [0.1, 0.9])
def test_the_metronomes_beat_as_often_as_the_load_asks(load):
    asked, scale_up = accesses(load=load), domain()
    rate_bps = asked.metronome_bps(scale_up, MTU_BYTES)
    for gpu in range(8):
        gaps_ns = [frames_bytes(beat) * 8e9 / rate_bps for beat in asked.beats(gpu, MTU_BYTES)]
        offered = asked.wire_bytes(scale_up) * 8e9 / statistics.mean(gaps_ns) / scale_up.technology.rate_bps
        assert abs(offered / load - 1) <= 0.05, f"GPU {gpu}: load {offered:.3f}, asked {load}"
        spread = statistics.stdev(gaps_ns) / statistics.mean(gaps_ns)
        assert 0.8 <= spread <= 1.05, f"GPU {gpu}: gaps have a coefficient of variation of {spread:.2f}, exponential ones 1"


def test_gpus_beat_each_in_its_own_way_and_the_same_at_every_run():
    assert accesses().beats(0, MTU_BYTES) == accesses().beats(0, MTU_BYTES)
    assert accesses().beats(0, MTU_BYTES) != accesses().beats(1, MTU_BYTES)
    assert accesses().beats(0, MTU_BYTES) != accesses(seed=2).beats(0, MTU_BYTES)


def test_every_gpu_has_a_metronome_in_its_own_server():
    cluster = with_metronomes(scale_up_alone(2, domain()), gbps(6400))
    for server in range(2):
        for gpu in range(4):
            source, target = metronome(server, gpu)
            assert cluster.peer(source) == target and source.node == target.node == f"srv{server}"
    assert {(link.rate_bps, link.cables) for link in cluster.links[-8:]} == {(gbps(6400), 4)}


@pytest.mark.parametrize(
    ("changes", "words"), [({"access": "swap"}, "unknown access 'swap'"), ({"load": 0}, "load=0"), ({"load": 1.5}, "load=1.5")]
)
def test_accesses_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        accesses(**changes)


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1, 10), (0.01, 1)])
def test_percentiles_are_values_by_nearest_rank(share, value):
    assert percentile(range(1, 11), share) == value
