"""The gate by itself; test_session.py has what it does in a whole session."""

from dataclasses import replace
from typing import Any

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup.digest import Digest, Digests
from kproxy.dedup.lanes import Lane
from kproxy.dedup.retry_ledger import ReadBack
from kproxy.dedup.unconfirmed import PendingProduce, Stamp, UnconfirmedBatch
from kproxy.proxy.commands import Resolve
from kproxy.proxy.retries import digests_at
from tests.codec import message_sets
from tests.dedup.wires import ONE, RULES, FakeWire, ledger
from tests.proxy.playbook import KAFKA_44, PID, Play, batch, stamps


def produce(topic: str, records: bytes, acks: int = -1) -> ProduceRequest:
    part = ProduceRequestPartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=acks, topic_data=[ProduceRequestTopicProduceData(name=topic, partition_data=[part])])


def errors(play: Play) -> list[int]:
    return [row.error_code for topic in play.answer().responses for row in topic.partition_responses]


def test_a_request_like_the_last_is_known_by_its_shape_and_another_is_not() -> None:
    play = Play()
    gate = play.gate
    assert gate.take_like_the_last(play.frame(produce("t", batch(b"a")), 7)) is False
    play.ask(produce("t", batch(b"a")), 7)
    assert gate.take_like_the_last(play.frame(produce("u", batch(b"a")), 7)) is False
    assert gate.take_like_the_last(play.frame(produce("t", batch(b"b", b"c")), 7)) is None
    assert len(play.upstream()) == 1  # the other has to wait until the first batch of the partition is in


def test_a_shape_is_forgotten_with_the_broker() -> None:
    play = Play()
    play.ask(produce("t", batch(b"a")), 7)
    play.gate.new_broker()
    assert play.gate.take_like_the_last(play.frame(produce("t", batch(b"b")), 7)) is False


class Captures:
    """Whose requests go into a transaction (``ImplicitTransactionFinder``), and the one into which they go."""

    def __init__(self) -> None:
        self.is_open = False
        self.taken: list[tuple[int, bool]] = []

    def of(self, client_id: str) -> Any:
        return self if self.is_open else None

    def took(self, connection: int, *, answered: bool) -> None:
        self.taken.append((connection, answered))


@pytest.mark.parametrize("version", [2, 7, 9])
@pytest.mark.parametrize("acks", [0, -1])
def test_a_request_like_the_last_goes_into_the_transaction_that_is_open_when_it_comes(version: int, acks: int) -> None:
    play, captures = Play(), Captures()
    play.ctx.services = replace(play.ctx.services, implicit_transactions=captures)
    records = message_sets.entry(0, None, b"a") if version == 2 else batch(b"a")
    for is_open in (False, True, True, False):
        captures.is_open = is_open
        assert play.ask(produce("t", records, acks=acks), version) is None
        if is_open:
            ask = play.coordinator_call().ask
            assert (ask.capture, ask.connection, [part[:2] for part in ask.parts]) == (captures, 7, [(b"t", 0)])
            assert not play.session.to_upstream
        else:
            assert not play.session.commands
            play.session.to_upstream.clear()
    assert captures.taken == [(7, acks != 0)] * 2


def test_without_idempotence_a_request_is_only_relayed() -> None:
    play = Play(idempotence=False)
    play.ask(produce("t", batch(b"a"), acks=1), 7)
    version, _, request = play.sent()
    assert (version, request.acks, stamps(request)) == (7, 1, [(-1, -1, -1)])


def test_a_stamped_batch_is_counted() -> None:
    play = Play()
    play.ask(produce("t", batch(b"a", b"b", b"c")), 7)
    assert stamps(play.sent()[2]) == [(PID, 0, 0)]
    stats = play.stats
    assert (stats.produce.batches_stamped, stats.produce.records_stamped, stats.produce.sends_in_flight) == (1, 3, 1)


def test_what_goes_to_the_new_leader_does_not_overtake_what_was_refused_at_the_former_one() -> None:
    book = ledger()
    plays = former, leader = Play(), Play()
    for number, play in enumerate(plays):
        play.session.connected(KAFKA_44, number)
        play.session.join(book.join(ONE, FakeWire(), 0.0))
        play.session.lease(Lane(PID + number))
    former.gate.producer.refusals.expect((b"t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    former.ask(produce("t", batch(b"a")), 7)
    assert errors(former) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    leader.ask(produce("t", batch(b"b")), 7)
    assert errors(leader) == [ErrorCode.REQUEST_TIMED_OUT]
    leader.ask(produce("t", batch(b"a", b"b")), 7)
    assert len(leader.upstream()) == 1
    assert not former.upstream()


def test_what_was_pipelined_after_a_refused_request_waits_for_it_until_the_whole_request_is_answered() -> None:
    """Seen in a run of chaos: the other partition's response took 110 ms, and the next batch had the same content."""

    def equal(made_ms: int) -> bytes:
        return bytes(build_batch([Record(0, 1_700_000_000_000 + made_ms, None, b"a", ())]))

    play = Play()
    play.gate.producer.refusals.expect((b"t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    both = produce("t", equal(0))
    both.topic_data += produce("u", batch(b"b")).topic_data
    play.ask(both, 7)
    version, correlation_id, sent = play.sent()
    assert [topic.name for topic in sent.topic_data] == ["u"]
    play.asked_at = 1.05  # the client can't have read of the refusal: it was not told yet
    play.ask(produce("t", equal(4)), 7)
    done = ProduceResponsePartitionProduceResponse(index=0, base_offset=9)
    answer = ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name="u", partition_responses=[done])])
    play.answered_at = 1.11
    play.reply(answer, version, correlation_id)
    play.asked_at = 1.12  # this one crossed the response
    play.ask(produce("t", equal(8)), 7)
    codes = [
        [row.error_code for topic in found.responses for row in topic.partition_responses] for found in play.answers()
    ]
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes == [[moved, 0], [moved], [moved]]
    assert not play.upstream()
    play.asked_at = 1.25
    play.ask(produce("t", equal(0)), 7)
    assert stamps(play.sent()[2]) == [(PID, 0, 0)]


@pytest.mark.parametrize(("read_at", "written"), [(1.5, 1), (2.5, 0)])
def test_the_retry_of_what_waited_for_too_long_is_written_if_it_was_read_before_an_equal_one_was_due(
    read_at: float, written: int
) -> None:
    """Both were sent at once, or the second one after the time-out of the first, which it may repeat."""
    play = Play()
    play.session.read_all(1.0)
    for value in b"x", b"a":  # the second waits until the producer id's first batch is in
        play.session.request(play.frame(produce("t", batch(value)), 7), 1.0)
    frame = play.frame(produce("t", batch(b"a")), 7)
    waiting = play.session.request(frame, read_at)
    waiting.resume(3.0)
    assert waiting.command is not None
    waiting.refuse(3.5)
    waiting.close()
    play.answered_at = 4.0
    for offset in 8, 9:
        version, correlation_id, _ = play.sent()
        done = ProduceResponsePartitionProduceResponse(index=0, base_offset=offset)
        topic = ProduceResponseTopicProduceResponse(name="t", partition_responses=[done])
        play.reply(ProduceResponse(responses=[topic]), version, correlation_id)
    codes = [found.responses[0].partition_responses[0].error_code for found in play.answers()]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    play.asked_at = 4.1
    command = play.ask(produce("t", batch(b"a")), 7)
    assert isinstance(command, Resolve)
    assert isinstance(command.prerequisite, ReadBack)
    for entry, value in zip(command.prerequisite.entries, (b"x", b"a"), strict=True):
        entry.recall(digests_at(batch(value), 1 << 20)[0], [entry.stamp.base_offset])
    assert play.ask(produce("t", batch(b"a")), 7) is None
    assert len(play.upstream()) == written


def test_a_refused_request_shows_no_client_that_continued() -> None:
    """It is the next again: what is in doubt may come before it."""
    member = ledger(replace(RULES, in_flight=1)).join(ONE, FakeWire(), 0.0)
    in_doubt = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, 40, 1), 1, sure=True, clean=False, since=0.0)
    in_doubt.recall(Digests.of([Digest(b"a" * 16, 7)]), [40])
    in_doubt.beside = frozenset({(b"t", 1)})  # is retried with the rest of its request
    member.ledger.add(in_doubt)
    whole = PendingProduce([PartitionData((b"t", at), 0, 0) for at in range(2)], 1e9)
    play = Play()
    play.session.join(member)
    play.session.lease(Lane(PID))
    play.gate.producer.refusals.expect((b"t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    play.ask(produce("t", batch(b"b")), 7)
    assert errors(play) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert member.ledger.candidates(member, (b"t", 0), whole, 0.0) == [in_doubt]
    play.ask(produce("t", batch(b"b")), 7)
    assert member.ledger.candidates(member, (b"t", 0), whole, 0.0) == []


def test_a_settled_connection_writes_new_batches_and_still_knows_a_retry() -> None:
    member = ledger().join(ONE, FakeWire(), 0.0)
    in_doubt = UnconfirmedBatch((b"t", 0), Stamp(5, 0, 0, 40, 1), 1, sure=False, clean=False, since=0.0)
    in_doubt.recall(digests_at(batch(b"a"), 1 << 20)[0], [40])
    member.ledger.add(in_doubt)
    play = Play()
    play.session.join(member)
    play.session.lease(Lane(PID))
    new = [
        bytes(build_batch([Record(0, 1_800_000_000_000 + number, None, b"a", ())]))
        for number in range(RULES.settled_requests(1) + 3)
    ]
    for number, data in enumerate(new):
        play.ask(produce("t", data), 7)
        version, correlation_id, _ = play.sent()
        row = ProduceResponsePartitionProduceResponse(index=0, base_offset=50 + number)
        topic = ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])
        play.reply(ProduceResponse(responses=[topic]), version, correlation_id)
        assert errors(play) == [0]
    assert member.ledger.quick_check(member, (b"t", 0), 1.0) is not None
    play.ask(produce("t", batch(b"a")), 7)
    assert not play.upstream()
    assert play.answer().responses[0].partition_responses[0].base_offset == 40


@pytest.mark.parametrize(
    ("topic", "acks", "error", "reason"),
    [
        ("__kproxy_transaction_state", -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "own_topic"),
        ("t" * 250, -1, ErrorCode.INVALID_TOPIC_EXCEPTION, "topic_name"),
        ("t/1", -1, ErrorCode.INVALID_TOPIC_EXCEPTION, "topic_name"),
        ("", -1, ErrorCode.INVALID_TOPIC_EXCEPTION, "topic_name"),
        ("t", 2, ErrorCode.INVALID_REQUIRED_ACKS, "acks"),
    ],
)
def test_what_is_refused_is_answered_and_counted(topic: str, acks: int, error: int, reason: str) -> None:
    play = Play()
    play.ask(produce(topic, batch(b"a"), acks), 7)
    assert not play.upstream()
    assert play.answer().responses[0].partition_responses[0].error_code == error
    assert play.stats.refused.refusals == {reason: 1}
