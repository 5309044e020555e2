"""Promises of the list of messages and of the tables that the engine runs from: nothing is lost in the columns."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import UsageError
from emu.nic.message import Message, Messages, sent_and_received
from emu.nic.messages import side_by_side
from emu.nic.work_request import CLEAR_TO_SEND_BYTES, arrange, request_table, with_credit
from emu.topology.model import nic

REQUEST = struct.Struct("=QQIIIIIIII")  # struct nic_request of nic.h
FIELDS = ("va", "done_ns", "qpn", "bytes", "psn_first", "packets", "waits", "release_first", "releases", "number")
MTU_BYTES, SERVERS, RAILS = 4096, 3, 2


@st.composite
def runnable(draw) -> list[Message]:
    """Messages that wait only for what has arrived at their server."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 25))):
        source, target = draw(st.permutations(range(SERVERS)))[:2]
        here = [at for at, one in enumerate(messages) if one.target.node == f"srv{source}"]
        after = draw(st.lists(st.sampled_from(here), unique=True, max_size=3)) if here else []
        messages.append(Message(nic(source, draw(st.integers(0, RAILS - 1))), nic(target, draw(st.integers(0, RAILS - 1))),
                                draw(st.integers(1, 20_000)), tuple(after), draw(st.integers(0, 1))))
    return messages


@given(runnable())
def test_what_goes_into_the_columns_comes_out_again(messages):
    kept = Messages.of(messages)
    assert list(kept) == messages and kept[-1] == messages[-1] and kept[1:3] == messages[1:3]
    assert list(kept.waits) == [(at, before) for at, message in enumerate(messages) for before in message.after]
    sent, received = sent_and_received(kept)
    assert sum(sent.values()) == sum(received.values()) == kept.total_bytes == sum(m.size_bytes for m in messages)
    for (source, target, channel), indexes in kept.connections.items():
        own = [at for at, m in enumerate(messages) if (m.source, m.target, m.channel) == (source, target, channel)]
        assert list(indexes) == own, f"{source} to {target}: {list(indexes)}, want {own}"


@given(runnable())
def test_the_tables_count_down_every_wait_exactly_once(messages):
    work = arrange(messages)
    packed, releases = request_table(work, MTU_BYTES, REQUEST)
    requests = [dict(zip(FIELDS, fields, strict=True)) for fields in REQUEST.iter_unpack(packed)]
    assert sum(request["releases"] for request in requests) == len(releases)
    for at, message in enumerate(messages):
        request = requests[work.slot[at]]
        first = request["release_first"]
        released = {slot for slot in releases[first:first + request["releases"]]}
        waiting = {work.slot[other] for other, one in enumerate(messages) if at in one.after}
        assert released == waiting, f"message {at} releases {released}, want {waiting}"
        assert (request["bytes"], request["waits"]) == (message.size_bytes, len(message.after))
        assert request["packets"] == -(-message.size_bytes // MTU_BYTES)
    for end in work.ends.values():
        own = requests[end.request_first:end.request_end]
        ends = [request["psn_first"] + request["packets"] for request in own]
        assert [request["psn_first"] for request in own] == [0, *ends][:-1], "PSNs of a queue pair follow each other"
        assert [request["number"] for request in own] == list(range(len(own)))
        assert {request["qpn"] for request in own} <= {end.qpn}


@given(runnable(), st.integers(0, 3))
def test_data_waits_for_its_credit_and_a_credit_for_a_free_buffer(messages, ahead):
    made = with_credit(messages, ahead)
    before: dict = {}
    for at, message in enumerate(messages):
        credit, data = made[2 * at], made[2 * at + 1]
        assert (credit.source, credit.target, credit.size_bytes) == (message.target, message.source, CLEAR_TO_SEND_BYTES)
        assert data.size_bytes == message.size_bytes and credit.channel == data.channel
        assert list(data.after) == [2 * at, *(2 * other + 1 for other in message.after)]
        own = before.setdefault((message.source, message.target, message.channel), [])
        want = (own[-ahead],) if 0 < ahead <= len(own) else ()
        assert credit.after == want, f"credit {at} waits for {credit.after}, want {want}"
        own.append(2 * at + 1)
    arrange(made)


@given(runnable())
def test_no_credit_stands_behind_data_of_the_other_direction(messages):
    for key, indexes in (made := with_credit(messages)).connections.items():
        kinds = {index % 2 for index in indexes}
        assert len(kinds) == 1, f"{key} carries credits and data: {[made[index] for index in indexes]}"


@given(runnable(), runnable())
def test_groups_side_by_side_wait_only_for_their_own(first, second):
    both = side_by_side([first, second])
    moved = [one._replace(after=tuple(len(first) + at for at in one.after)) for one in second]
    assert list(both) == first + moved


A, B, C = nic(0, 0), nic(1, 0), nic(2, 0)


@pytest.mark.parametrize("messages, said", [
    ([Message(A, B, 0)], "message 0 from srv0:rail0 to srv1:rail0 has 0 bytes"),
    ([Message(A, A, 1)], "does not send to itself"),
    ([Message(A, B, 1, (0,))], "waits for message 0; want one that is listed before it"),
    ([Message(A, B, 1), Message(B, C, 1, (-1,))], "waits for message -1"),
    ([Message(A, B, 1), Message(C, A, 1, (0,))], "message 1 .* waits for message 0, which arrives on srv1"),
])
def test_a_message_that_can_never_go_is_refused_with_its_reason(messages, said):
    with pytest.raises(UsageError, match=said):
        arrange(messages)
