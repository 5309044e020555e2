"""Promises of the modes' models (emu/switch/oracle.py), which the programs in the kernel are held against."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from emu.switch.byte_time import ByteTime
from emu.switch.oracle import EnhancedHash, Flowlets, LeastBusy, Packet, Random, RoundRobin, Table, flow_key

RATE_BYTES = 500_000_000  # 2 ns a byte
NO_LIMIT_NS = 1 << 62
FRAME_BYTES, FRAME_NS = 4174, 8348


def packet(sport: int = 50_000, qp: int = 17, length: int = 4174, at_ns: int = 0) -> Packet:
    return Packet(ifindex=7, source=0x0A000001, target=0x0A000109, udp_sport=sport, target_qp=qp, count_bytes=length, at_ns=at_ns)


def links(count: int, limit_ns: int = NO_LIMIT_NS) -> LeastBusy:
    return LeastBusy([ByteTime.at(RATE_BYTES)] * count, [limit_ns] * count, FRAME_NS, lambda packet: packet.target >> 8)


@given(lengths=st.lists(st.sampled_from([62, 78, 1500, 4174]), min_size=1, max_size=300), count=st.integers(2, 8),
       pause_ns=st.sampled_from([0, 100, 1000, 100_000]))
def test_spray_never_lets_two_uplinks_differ_by_more_than_two_frames(lengths, count, pause_ns):
    """One that it may add to the fuller of two that wait alike, one by which waits that count as alike differ."""
    model = links(count)
    for at, length in enumerate(lengths):
        model.pick(packet(length=length, at_ns=at * pause_ns), range(count))
    difference = max(model.sent_bytes) - min(model.sent_bytes)
    assert difference <= 2 * FRAME_BYTES, f"{model.sent_bytes}"


def test_spray_takes_the_uplink_with_the_shortest_queue_in_frames():
    model = links(3)
    model.busy_ns = [3 * FRAME_NS, FRAME_NS, 2 * FRAME_NS]
    assert model.pick(packet(length=100), (0, 1, 2)) == 1
    assert model.pick(packet(length=100), (0, 2)) == 2, "uplink 1 doesn't lead there"
    assert model.pick(packet(length=100, at_ns=4 * FRAME_NS), (0, 1)) == 0, "nothing waits: the one with fewer bytes"


def test_of_uplinks_alike_spray_takes_the_one_that_has_carried_least_to_that_leaf():
    model = links(2)
    here, there = packet(), packet()._replace(target=0x0A000209)
    assert model.pick(here, (0,)) == model.pick(there, (1,)) - 1 == 0
    model.busy_ns = [0, 0]
    assert (model.pick(here, (0, 1)), model.pick(there, (0, 1))) == (1, 0)


def test_a_full_buffer_takes_no_more():
    model = links(1, limit_ns=10_000)
    for _ in range(10):
        model.pick(packet(), (0,))
    assert model.busy_ns == [2 * FRAME_NS], "the third would have had to wait for more than the buffer holds"


def test_eecmp_keeps_a_flow_on_its_path_and_tells_queue_pairs_apart_that_ecmp_can_t():
    model, slots = EnhancedHash(hash_seed=12345), range(16)
    picks = [model.pick(packet(qp=qp), slots) for qp in range(64)]
    assert picks == [model.pick(packet(qp=qp), slots) for qp in range(64)]
    assert len(set(picks)) > 12, f"64 queue pairs on {len(set(picks))} of 16 uplinks"
    assert picks != [EnhancedHash(hash_seed=54321).pick(packet(qp=qp), slots) for qp in range(64)]


def test_random_spray_follows_its_seed_and_uses_all_uplinks_alike():
    one, same, other = Random(1), Random(1), Random(2)
    picks = [one.pick(packet(), range(4)) for _ in range(4000)]
    assert picks == [same.pick(packet(), range(4)) for _ in range(4000)]
    assert picks != [other.pick(packet(), range(4)) for _ in range(4000)]
    assert all(abs(count - 1000) < 110 for count in Counter(picks).values()), Counter(picks)  # four standard deviations


def test_round_robin_goes_round():
    model = RoundRobin()
    assert [model.pick(packet(), (3, 5, 9)) for _ in range(7)] == [3, 5, 9, 3, 5, 9, 3]


def test_a_path_whose_uplink_no_longer_leads_there_is_unknown():
    model = Table(flow_key, {flow_key(packet()): 2})
    assert model.pick(packet(), (0, 1, 2)) == 2
    assert model.pick(packet(), (0, 1)) is None
    assert model.pick(packet(sport=50_001), (0, 1, 2)) is None


def test_a_flowlet_moves_only_after_its_gap_or_when_its_path_is_dead():
    model = Flowlets(links(2), gap_ns=1000)
    assert model.pick(packet(at_ns=5_000), (0, 1)) == 0
    assert [model.pick(packet(at_ns=5_000 + 1000 * k), (0, 1)) for k in (1, 2, 3)] == [0, 0, 0], "never more than the gap"
    assert model.pick(packet(at_ns=9_002), (0, 1)) == 1, "uplink 0 has the longer queue now"
    assert model.pick(packet(at_ns=9_003), (0,)) == 0
