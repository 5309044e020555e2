"""Promises of the NIC's transport, asked of its model: whatever is lost, doubled or late, each packet is placed once.

tests/integration/test_nic_follows_its_model.py plays real packets to the model, so that these promises hold for the NIC.
"""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.roce.reliable import WINDOW_MAX, Answer, Kind, Receiver, Sender

TRANSPORTS = pytest.mark.parametrize("selective", [True, False], ids=["sr", "gbn"])
TURNS_MAX = 20_000


def exchange(sender: Sender, receiver: Receiver, rng: random.Random, loss: float, twice: float, late: float) -> int:
    """Let them talk until all is acknowledged; timeouts where nothing is under way. Returns how many there were."""
    wire: list[tuple[object, bool]] = [(packet, True) for packet in sender.on_tick()]
    timeouts = 0
    for _ in range(TURNS_MAX):
        if sender.done:
            return timeouts
        if not wire:
            timeouts += 1
            wire = [(packet, True) for packet in sender.on_tick(timeout=True)]
            continue
        what, to_receiver = wire.pop(rng.randrange(min(len(wire), 50)) if rng.random() < late else 0)
        if rng.random() < loss:
            continue
        if rng.random() < twice:
            wire.append((what, to_receiver))
        if to_receiver:
            answer = receiver.on_data(*what)
            wire += [(answer, False)] if answer else []
        else:
            wire += [(packet, True) for packet in sender.on_answer(what)]
    raise AssertionError(f"not done after {TURNS_MAX} turns: una {sender.una} of {sender.ends[-1]}, {timeouts} timeouts")


@TRANSPORTS
@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0, 0.001, 0.01, 0.05, 0.3]),
    twice=st.sampled_from([0, 0.05]),
    late=st.sampled_from([0, 0.05]),
    window=st.sampled_from([1, 7, 64, 1024]),
)
def test_every_message_completes_and_every_packet_is_placed_once(selective, sizes, seed, loss, twice, late, window):
    ends = list(accumulate(sizes))
    late = late if selective else 0  # gbn takes every late packet for a loss, as the classic transport does
    sender, receiver = Sender(ends, selective, window=window, ack_every=min(4, window)), Receiver(ends, selective)
    exchange(sender, receiver, random.Random(seed), loss, twice, late)
    assert sorted(receiver.placed) == list(range(ends[-1])), "a PSN is missing or was placed twice"
    assert receiver.complete == len(sizes), f"{receiver.complete} of {len(sizes)} messages complete"


@TRANSPORTS
def test_without_loss_nothing_is_sent_twice(selective):
    sender, receiver = Sender([300, 301, 1000], selective), Receiver([300, 301, 1000], selective)
    timeouts = exchange(sender, receiver, random.Random(1), 0, 0, 0)
    assert (sender.resent, receiver.duplicates, timeouts) == (0, 0, 0)


def test_a_gap_alone_brings_no_nak_and_no_repair_from_selective_repeat():
    receiver = Receiver([400], True)
    answers = [receiver.on_data(psn, True) for psn in range(1, 20)]
    assert {answer.kind for answer in answers} == {Kind.SACK}
    sender = Sender([400], True, reorder=128)
    while sender.next < 256:
        sender.on_tick()
    sender.on_answer(answers[-1])
    assert sender.resent == 0, "19 packets past the gap is less than the 128 that a path may differ by"


def test_go_back_n_sends_one_nak_for_a_gap_and_another_for_the_next():
    receiver = Receiver([100], False)
    said = [receiver.on_data(psn, False) for psn in (0, 2, 3, 4, 1, 2, 4, 5)]
    assert [answer for answer in said if answer] == [Answer(Kind.NAK, 1), Answer(Kind.NAK, 3)]


def test_a_message_is_complete_only_when_its_last_missing_packet_is_there():
    receiver = Receiver([10, 20], True)
    for psn in [*range(1, 20)]:
        receiver.on_data(psn, False)
        assert receiver.complete == 0, f"complete at PSN {psn} while PSN 0 is missing"
    receiver.on_data(0, False)
    assert receiver.complete == 2


def test_the_window_holds_1024_packets_and_refuses_the_next():
    receiver = Receiver([5000], True)
    for psn in range(1, WINDOW_MAX):
        receiver.on_data(psn, False)
    assert len(receiver.placed) == WINDOW_MAX - 1 and receiver.refused == 0
    receiver.on_data(WINDOW_MAX, False)
    assert receiver.refused == 1
    receiver.on_data(0, False)
    assert receiver.expected == WINDOW_MAX


@TRANSPORTS
def test_the_loss_of_the_last_packet_is_repaired_by_the_timer(selective):
    sender, receiver = Sender([5], selective), Receiver([5], selective)
    for packet in sender.on_tick()[:4]:
        if answer := receiver.on_data(*packet):
            assert not sender.on_answer(answer)
    assert receiver.complete == 0
    again = sender.on_tick(timeout=True)
    assert again == [(4, True)], f"sent {again}, want the last packet alone"
