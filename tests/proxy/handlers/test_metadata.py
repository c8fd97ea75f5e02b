"""Metadata: a client meets kproxy, never a broker, and finds the topic that was created for it."""

import pytest

from kproxy.codec._generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ErrorCode
from kproxy.proxy.commands import Close, WaitForLog
from kproxy.proxy.routing import Address
from tests.proxy.authorization.screening import Screened
from tests.proxy.playbook import Play, batch

MISSING = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")
CREATED = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(leader_id=1)])


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_kproxys_ports_in_every_version(version: int) -> None:
    play = Play()
    play.ask(MetadataRequest(topics=[]), version)
    asked, correlation_id, _ = play.sent()
    brokers = [MetadataResponseBroker(1, "h1", 9091), MetadataResponseBroker(2, "h2", 9092)]
    assert play.reply(MetadataResponse(brokers=brokers), asked, correlation_id) == []
    assert [(row.node_id, row.host, row.port) for row in play.answer().brokers] == [
        (1, "proxy", 1001),
        (2, "proxy", 1002),
    ]


@pytest.mark.parametrize(("host", "port"), [("h2", 9999), ("elsewhere", 9092)])
def test_a_broker_that_is_new_or_has_moved_has_to_be_learnt_first(host: str, port: int) -> None:
    play = Play()
    play.ask(MetadataRequest(), 4)
    _, correlation_id, _ = play.sent()
    answer = MetadataResponse(brokers=[MetadataResponseBroker(2, host, port), MetadataResponseBroker(3, "h3", 9093)])
    assert play.reply(answer, 4, correlation_id) == [(2, Address(host, port)), (3, Address("h3", 9093))]
    assert not play.answers()
    play.session.response(bytearray(encode_response(answer, 4, correlation_id)), 2.0, learnt=True)
    assert [row.node_id for row in play.answer().brokers] == [2]  # 3 has no port: left out, not shown


def test_kproxys_own_topics_are_not_written_by_their_ids_either() -> None:
    """Produce v13 names topics by id; a client has the id from Metadata, through kproxy."""
    play = Play()
    play.ask(MetadataRequest(), 12)
    topic = MetadataResponseTopic(name="__kproxy_producer_state", topic_id=b"i" * 16)
    play.reply(MetadataResponse(topics=[topic]), 12, play.sent()[1])
    play.answer()
    part = ProduceRequestPartitionProduceData(index=0, records=batch(b"a"))
    data = ProduceRequestTopicProduceData(topic_id=b"i" * 16, partition_data=[part])
    play.ask(ProduceRequest(acks=-1, topic_data=[data]), 13)
    row = play.answer().responses[0]
    assert (row.topic_id, row.partition_responses[0].error_code) == (b"i" * 16, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_the_names_and_ids_of_topics_are_known_from_then_on() -> None:
    """A zero in an id is one like another; without any other byte there is no id (KIP-516)."""
    play = Play()
    play.ask(MetadataRequest(), 12)
    own_id, user_id = bytes(15) + b"o", bytes(15) + b"u"
    topics = [
        MetadataResponseTopic(name="__kproxy_producer_state", topic_id=own_id),
        MetadataResponseTopic(name="__kproxy_of_an_old_broker"),
        MetadataResponseTopic(name="t", topic_id=user_id),
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=b"?" * 16),
    ]
    play.reply(MetadataResponse(topics=topics), 12, play.sent()[1])
    assert len(play.answer().topics) == 4
    assert play.ctx.cluster.own_topic_ids == {own_id}
    assert play.ctx.cluster.topic_names == {own_id: "__kproxy_producer_state", user_id: "t"}


@pytest.mark.parametrize("version", [0, 3, 4, 9, 12])
def test_no_broker_creates_a_topic_of_kproxys_for_a_client(version: int) -> None:
    """It would not be compacted. The broker is asked in a version in which it can be told so."""
    play = Play()
    names = [MetadataRequestTopic(name=name) for name in ("t", "__kproxy_producer_state")]
    play.ask(MetadataRequest(topics=names), version)
    upstream, correlation_id, request = play.sent()
    assert (upstream, request.allow_auto_topic_creation) == (max(version, 4), False)
    assert [topic.name for topic in request.topics] == ["t", "__kproxy_producer_state"]
    play.reply(MetadataResponse(topics=[CREATED, MISSING]), upstream, correlation_id)
    found, missing = play.answer().topics  # at once: nothing will appear
    assert [row.leader_id for row in found.partitions] == [1]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("makes_topics", [True, False])
def test_no_broker_creates_a_topic_for_a_client_that_may_not(makes_topics: bool) -> None:
    play = Play()
    may = ("Describe t:t", "Create t:t") if makes_topics else ("Describe t:t",)
    play.ctx.access = Screened(*may).access
    play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 3)
    upstream, _, request = play.sent()
    assert (upstream, request.allow_auto_topic_creation) == ((3, True) if makes_topics else (4, False))


def test_topics_are_asked_for_by_their_ids_and_all_of_them() -> None:
    play = Play()
    for topics in (None, [MetadataRequestTopic(topic_id=b"i" * 16, name=None)]):
        play.ask(MetadataRequest(topics=topics), 12)
        assert play.sent()[2] == MetadataRequest(topics=topics)


def asked(version: int, **more: bool) -> tuple[Play, int]:
    """A client asks for a topic at 2 s, and the broker lacks it; with the version that the broker was asked in."""
    play = Play()
    play.answered_at = 2.0
    play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")], **more), version)
    return play, replied(play, MISSING)


def replied(play: Play, topic: MetadataResponseTopic) -> int:
    upstream, correlation_id, _ = play.sent()
    play.reply(MetadataResponse(topics=[topic]), upstream, correlation_id)
    return upstream


def waiting(play: Play) -> WaitForLog:
    (command,) = play.commands()
    assert isinstance(command, WaitForLog)
    assert not play.answers()
    return command


@pytest.mark.parametrize("version", range(11))
def test_a_client_from_before_kafka_2_8_finds_the_topic_that_is_created_for_it(version: int) -> None:
    play, _ = asked(version)
    play.session.resume(waiting(play), 2.1)
    replied(play, CREATED)
    (topic,) = play.answer().topics
    assert (topic.error_code, topic.name, [row.leader_id for row in topic.partitions]) == (0, "t", [1])


def test_the_broker_is_asked_ten_times_a_second() -> None:
    play, _ = asked(0)
    command = waiting(play)
    assert play.session.resume(command, 2.09) is command  # what comes to the log wakes it too
    assert not play.upstream()
    assert play.session.resume(command, 2.1) is None
    assert play.upstream()


def test_a_topic_that_does_not_appear_within_a_second_is_unknown_and_none_is_waited_for_in_the_next_minute() -> None:
    play, _ = asked(0)
    for tenths in range(1, 11):
        play.session.resume(waiting(play), play.answered_at + 0.1)
        play.answered_at = 2.0 + tenths / 10
        replied(play, MISSING)
    assert play.answer().topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for at, waits in ((62.9, False), (63.0, True)):
        play.answered_at = at
        play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 0)
        replied(play, MISSING)
        assert bool(play.commands()) is waits
        assert bool(play.answers()) is not waits


@pytest.mark.parametrize(("version", "creates"), [(11, True), (13, True), (4, False), (10, False)])
def test_a_client_that_knows_or_wants_no_new_topic_does_not_wait(version: int, creates: bool) -> None:
    play, _ = asked(version, allow_auto_topic_creation=creates)
    assert play.answer().topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not play.commands()


def test_other_responses_of_the_connection_do_not_wait_for_a_topic() -> None:
    play = Play()
    play.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 0)
    play.ask(MetadataRequest(topics=[]), 0)
    (upstream, correlation_id, _), _ = play.upstream()
    play.reply(MetadataResponse(topics=[MISSING]), upstream, correlation_id)
    assert play.answer().topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_connection_ends_where_the_broker_is_lost_while_it_waits() -> None:
    play, _ = asked(0)
    command = waiting(play)
    play.session.disconnected(3.0)
    play.session.resume(command, 2.1)
    assert not play.answers()
    assert Close() in play.commands()
