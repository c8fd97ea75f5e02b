"""A session under transactional clients: whose requests go to kproxy's coordinator, and whose to the broker."""

from collections.abc import Mapping
from typing import Any

import pytest

from kproxy.codec._generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnRequestAddPartitionsToTxnTransaction,
)
from kproxy.codec._generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiVersion,
)
from kproxy.codec._generated.end_txn import EndTxnRequest, EndTxnResponse
from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
)
from kproxy.codec.messages import APIS, ApiKey, ErrorCode, Message
from kproxy.dedup.producer_ids import FIRST_RESERVED, KPROXY_BIT
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.commands import AwaitProgress, Close, WarnOfRefusal
from kproxy.proxy.coordinator_requests import TransactionalProduce, TransactionRequest
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.permits import PermitRule, Permits
from kproxy.proxy.transaction_messages import failed, produced
from kproxy.txn.ids import Producer
from kproxy.txn.requests import IdHolder, TxnRequest, Written
from tests.proxy.playbook import KAFKA_44, Play, batch
from tests.proxy.test_session import produce, results

OURS = (HomeRule("theirs", Home.BROKER), HomeRule("*", Home.KPROXY))
AUTO = (HomeRule("*", Home.AUTO),)
BROKERS: Mapping[int, tuple[int, int]] = {
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 6),
}
SERVED = {**KAFKA_44, **BROKERS}
WHO = TxnRequest("id", Producer(4000, 3), 7, "me", IdHolder("", "me"))


def add_partitions(name: str) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnRequestAddPartitionsToTxnTopic("t", [0])]
    return AddPartitionsToTxnRequest([], name, 4000, 3, topics)


def asked(name: str) -> list[Message]:
    return [
        InitProducerIdRequest(name, 1000, 4000, 3),
        add_partitions(name),
        AddOffsetsToTxnRequest(name, 4000, 3, "g"),
        EndTxnRequest(name, 4000, 3, True),
        TxnOffsetCommitRequest(name, "g", 4000, 3),
    ]


EACH = [
    (request.API_KEY, version)
    for request in asked("id")
    for version in range((3 if request.API_KEY == ApiKey.ADD_PARTITIONS_TO_TXN else APIS[request.API_KEY][2]) + 1)
]


def request_of(api_key: int, name: str, version: int) -> Any:
    if api_key == ApiKey.INIT_PRODUCER_ID and version < 3:
        return InitProducerIdRequest(name, 1000)
    return {request.API_KEY: request for request in asked(name)}[api_key]


@pytest.mark.parametrize("served", [SERVED, KAFKA_44], ids=["served", "not served"])
@pytest.mark.parametrize(("api_key", "version"), EACH)
def test_each_version_is_served_whatever_the_broker_serves(
    api_key: int, version: int, served: Mapping[int, tuple[int, int]]
) -> None:
    play = Play(served=served, homes=OURS)
    request = request_of(api_key, "id", version)
    assert play.ask(request, version) is None
    coordinator_call = play.coordinator_call()
    assert isinstance(coordinator_call.ask, TransactionRequest)
    assert coordinator_call.ask.request == request
    assert coordinator_call.ask.who == (
        WHO if version >= 3 or api_key != ApiKey.INIT_PRODUCER_ID else WHO._replace(client=(-1, -1))
    )
    assert not play.session.to_upstream
    answer = failed(request, version, ErrorCode.NOT_COORDINATOR)
    play.session.coordinator_answered(coordinator_call, answer, 2.0)
    assert play.answer() == answer


@pytest.mark.parametrize("homes", [None, AUTO, OURS], ids=["none", "auto", "by pattern"])
@pytest.mark.parametrize(
    ("api_key", "version"), [(key, version) for key, version in EACH if version <= BROKERS[key][1]]
)
def test_what_is_the_brokers_is_relayed_to_the_byte(api_key: int, version: int, homes: Any) -> None:
    play = Play(served=SERVED, homes=homes)
    frame = play.frame(request_of(api_key, "theirs", version), version)
    sent = bytes(frame)
    assert play.session.request(frame, 1.0) is None
    assert b"".join(map(bytes, play.session.to_upstream)) == sent
    assert not play.session.commands


def test_auto_is_kproxy_where_the_broker_has_no_transactions() -> None:
    play = Play(homes=AUTO)
    play.ask(EndTxnRequest("id", 4000, 3, True), 3)
    assert isinstance(play.coordinator_call().ask, TransactionRequest)
    play = Play(served=SERVED, homes=AUTO)
    play.ask(EndTxnRequest("id", 4000, 3, True), 3)
    assert play.sent()[0] == 3


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.END_TXN, 4), (ApiKey.INIT_PRODUCER_ID, 5)])
def test_an_id_of_the_brokers_gets_no_more_than_the_broker_serves(api_key: int, version: int) -> None:
    served = {**SERVED, api_key: (0, version - 1)}
    with pytest.raises(RemoteProtocolError, match="newer"):
        Play(served=served, homes=OURS).ask(request_of(api_key, "theirs", version), version)
    with pytest.raises(RemoteProtocolError, match="not served"):
        Play(homes=OURS).ask(request_of(api_key, "theirs", version), version)


def test_an_older_request_for_the_broker_is_lifted() -> None:
    play = Play(served={**SERVED, ApiKey.END_TXN: (2, 5)}, homes=OURS)
    play.ask(EndTxnRequest("theirs", 4000, 3, True), 0)
    version, correlation_id, _ = play.sent()
    assert version == 2
    play.reply(EndTxnResponse(error_code=0), version, correlation_id)
    assert play.answer().error_code == 0


def test_an_idempotent_producer_has_no_transactional_id_and_goes_to_the_broker() -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(InitProducerIdRequest(None, 1000), 4)
    version, correlation_id, _ = play.sent()
    play.reply(InitProducerIdResponse(producer_id=5, producer_epoch=0), version, correlation_id)
    assert play.answer().producer_id == 5


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize(
    ("name", "told"),
    [(None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ("id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
)
def test_a_broker_that_assigns_an_id_of_kproxys_own_range_is_not_believed(
    version: int, name: str | None, told: ErrorCode
) -> None:
    play = Play(served=SERVED)
    for assigned, error, client in ((FIRST_RESERVED, told, -1), (FIRST_RESERVED - 1, 0, FIRST_RESERVED - 1)):
        play.ask(InitProducerIdRequest(name, 1000), version)
        upstream, correlation_id, _ = play.sent()
        play.reply(InitProducerIdResponse(producer_id=assigned, producer_epoch=0), upstream, correlation_id)
        answer = play.answer()
        assert (answer.error_code, answer.producer_id) == (error, client)


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (InitProducerIdRequest("", 1000), 2, ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("id", 1000, 5, -1), 4, ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("id", 1000, -1, 5), 4, ErrorCode.INVALID_REQUEST),
        (
            InitProducerIdRequest("id", 1000, enable2_pc=True),
            6,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (InitProducerIdRequest("id", 1000, keep_prepared_txn=True), 6, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_producers_that_kafka_refuses_at_once(request_: Message, version: int, error: ErrorCode) -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(request_, version)
    assert play.answer().error_code == error
    assert not play.session.commands


@pytest.mark.parametrize("homes", [None, OURS])
@pytest.mark.parametrize("version", [4, 5])
def test_brokers_requests_from_clients_are_refused(version: int, homes: Any) -> None:
    """Rule 17."""
    play = Play(served=SERVED, homes=homes)
    rows = [AddPartitionsToTxnRequestAddPartitionsToTxnTransaction("theirs", 4000, 3)]
    play.ask(AddPartitionsToTxnRequest(transactions=rows), version)
    assert play.answer().error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not play.session.to_upstream


@pytest.mark.parametrize("served", [SERVED, KAFKA_44])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_markers_of_clients_are_refused_each(version: int, served: Any) -> None:
    play = Play(served=served, homes=OURS)
    topics = [WriteTxnMarkersRequestWritableTxnMarkerTopic("t", [0, 3])]
    markers = [WriteTxnMarkersRequestWritableTxnMarker(pid, 1, False, topics) for pid in (5, 6)]
    play.ask(WriteTxnMarkersRequest(markers), version)
    answer = play.answer()
    assert [marker.producer_id for marker in answer.markers] == [5, 6]
    rows = [row for marker in answer.markers for topic in marker.topics for row in topic.partitions]
    assert [row.error_code for row in rows] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 4
    assert not play.session.to_upstream


def told(play: Play) -> dict[int, tuple[int, int]]:
    play.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    version, correlation_id, _ = play.sent()
    ranges = play.ctx.broker_versions.items()
    rows = [ApiVersionsResponseApiVersion(key, first, last) for key, (first, last) in ranges]
    play.reply(ApiVersionsResponse(api_keys=rows), version, correlation_id)
    return {row.api_key: (row.min_version, row.max_version) for row in play.answer().api_keys}


def test_transactions_are_listed_where_somebody_serves_them() -> None:
    assert ApiKey.END_TXN not in told(Play(homes=None))
    assert told(Play(homes=AUTO))[ApiKey.END_TXN] == (0, 5)
    assert told(Play(homes=OURS))[ApiKey.END_TXN] == (0, 5)
    assert ApiKey.END_TXN not in told(Play(homes=(HomeRule("*", Home.BROKER),)))
    for homes in (None, OURS):
        ranges = told(Play(served=SERVED, homes=homes))
        assert ranges[ApiKey.ADD_PARTITIONS_TO_TXN] == (0, 3)
        assert ranges[ApiKey.END_TXN] == (0, 5)


# -- Produce


def data(producer_id: int = 4000, **more: Any) -> bytes:
    given = {"producer_epoch": 3, "base_sequence": 5, "is_transactional": True, **more}
    return batch(b"a", producer_id=producer_id, **given)


@pytest.mark.parametrize("version", range(3, 14))
def test_batches_of_a_transaction_go_to_its_coordinator(version: int) -> None:
    play = Play(served=SERVED, homes=OURS)
    topic_id = b"\7" * 16
    assert play.ask(produce(data(), transactional_id="id", topic_id=topic_id), version) is None
    coordinator_call = play.coordinator_call()
    assert isinstance(coordinator_call.ask, TransactionalProduce)
    assert coordinator_call.ask.who == WHO
    (part,) = coordinator_call.ask.parts
    assert (part.topic, part.partition, part.records, part.base_sequence) == (
        topic_id if version >= 13 else b"t",
        0,
        1,
        5,
    )
    assert bytes(part.batch) == data()
    play.session.coordinator_answered(
        coordinator_call, produced(coordinator_call.ask.parts, [Written(0, 77, -1)], version), 2.0
    )
    assert results(play.answer()) == [(0, 77)]
    assert not play.session.to_upstream


def test_one_shape_of_request_is_not_taken_for_another_ones_home() -> None:
    """Requests that look like the one before take a shorter way, which knows nothing of transactions."""
    play = Play(served=SERVED, homes=OURS)
    for _ in range(2):
        play.ask(produce(data(), transactional_id="id"), 8)
        assert isinstance(play.coordinator_call().ask, TransactionalProduce)
    for _ in range(2):
        play.ask(produce(data(), transactional_id="theirs"), 8)
        assert play.sent()[2].transactional_id == "theirs"
    play.ask(produce(data(), transactional_id="id"), 8)
    assert isinstance(play.coordinator_call().ask, TransactionalProduce)


def test_a_request_like_the_last_asks_what_it_asks_alone() -> None:
    for version in (8, 9):
        asked: list[Any] = []
        for before in (False, True):
            play = Play(served=SERVED, homes=OURS)
            if before:
                play.ask(produce(data(), transactional_id="id"), version)
                play.coordinator_call()
            play.ask(produce(data(base_sequence=9), transactional_id="id"), version)
            asked.append(play.coordinator_call().ask)
        assert asked[0] == asked[1]


@pytest.mark.parametrize("changes", ["rights", "home", "topics", "broker"])
def test_what_may_be_different_by_now_is_checked_for_each_request(changes: str) -> None:
    play = Play(homes=AUTO)
    play.ask(produce(data(), transactional_id="id"), 8)
    first = play.coordinator_call()
    assert isinstance(first.ask, TransactionalProduce)
    play.session.coordinator_answered(first, produced(first.ask.parts, [Written(0, 1, -1)], 8), 2.0)
    assert results(play.answer()) == [(0, 1)]
    if changes == "rights":
        play.ctx.permits = Permits((PermitRule("id", "others"),))
    elif changes == "home":
        play.session.versions_known(SERVED, None)
    elif changes == "topics":
        play.ctx.services.cluster.own_topic_ids.add(b"t")
    else:
        play.session.disconnected(3.0)
        play.session.connected(SERVED, 1)
    play.ask(produce(data(base_sequence=6), transactional_id="id"), 8)
    assert all(isinstance(one, WarnOfRefusal) for one in play.commands())
    if changes == "rights":
        assert results(play.answer()) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
    elif changes == "topics":
        assert results(play.answer()) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)]
    else:
        assert play.sent()[2].transactional_id == "id"


def test_batches_of_the_brokers_transactions_are_relayed() -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(produce(data(), transactional_id="theirs"), 9)
    assert play.sent()[2].transactional_id == "theirs"


def test_without_waiting_for_answers_there_is_no_transaction() -> None:
    """A broker that can't tell an error hangs up, too; else the records would be missing in a committed transaction."""
    play = Play(served=SERVED, homes=OURS)
    play.ask(produce(data(), transactional_id="id", acks=0), 8)
    assert play.commands() == [WarnOfRefusal("acks"), Close()]
    assert play.stats.refused.refusals == {"acks": 1}


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (produce(data(4000 | KPROXY_BIT), transactional_id="id"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (produce(data(), transactional_id="id", topic="__kproxy_x"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (produce(data(), transactional_id="id", acks=7), ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_forged_batches_are_refused_before_anybody_is_asked(request_: Message, error: ErrorCode) -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(request_, 8)
    assert results(play.answer()) == [(error, -1)]
    assert all(isinstance(one, WarnOfRefusal) for one in play.commands())


def test_answers_keep_the_order_of_the_requests() -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(produce(data(), transactional_id="id"), 8)
    play.ask(HeartbeatRequest(), 0)
    play.ask(EndTxnRequest("id", 4000, 3, True), 3)
    first, last = play.session.commands
    play.reply(HeartbeatResponse(), 0, play.sent()[1])
    play.session.coordinator_answered(last, EndTxnResponse(), 2.0)
    assert not play.answers()
    assert isinstance(first.ask, TransactionalProduce)
    play.session.coordinator_answered(first, produced(first.ask.parts, [Written(0, 1, -1)], 8), 2.0)
    assert [answer.API_KEY for answer in play.answers()] == [ApiKey.PRODUCE, ApiKey.HEARTBEAT, ApiKey.END_TXN]
    assert play.session.idle


def test_what_waits_for_the_coordinator_holds_the_client_back() -> None:
    play = Play(served=SERVED, homes=OURS, held_bytes=100)
    assert play.ask(produce(data(), transactional_id="id"), 8) is None
    assert play.ask(HeartbeatRequest(), 0) == AwaitProgress()


@pytest.mark.parametrize("homes", [None, OURS])
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (InitProducerIdRequest(transactional_id="__kproxy_group_offsets.3"), 4),
        (EndTxnRequest(transactional_id="__kproxy_group_offsets.3", producer_id=7, producer_epoch=0), 3),
        (AddOffsetsToTxnRequest("__kproxy_group_offsets.3", 7, 0, "g"), 3),
    ],
)
def test_ids_of_kproxys_own_writers_are_refused(homes: Any, request_: Message, version: int) -> None:
    play = Play(served=SERVED, homes=homes)
    play.ask(request_, version)
    assert play.upstream() == []
    assert play.answer().error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


ILLEGAL = ["t" * 250, "t/1", ""]


@pytest.mark.parametrize("name", ILLEGAL)
def test_partitions_of_a_topic_that_there_cannot_be_are_not_added(name: str) -> None:
    play = Play(served=SERVED, homes=OURS)
    request = add_partitions("id")
    request.v3_and_below_topics.append(AddPartitionsToTxnRequestAddPartitionsToTxnTopic(name, [0]))
    play.ask(request, 3)
    assert not play.session.commands
    found = [row.results_by_partition[0].partition_error_code for row in play.answer().results_by_topic_v3_and_below]
    assert found == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("name", ILLEGAL)
def test_offsets_of_a_topic_that_there_cannot_be_are_refused_and_the_others_committed(name: str) -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(TxnOffsetCommitRequest("id", "g", 4000, 3, topics=[_offset(name), _offset("t")]), 3)
    [call] = play.session.commands
    assert isinstance(call.ask, TransactionRequest)
    request: Any = call.ask.request
    assert [topic.name for topic in request.topics] == ["t"]
    play.session.coordinator_answered(call, failed(request, 3, ErrorCode.NONE), 2.0)
    found = [(topic.name, topic.partitions[0].error_code) for topic in play.answer().topics]
    assert found == [("t", ErrorCode.NONE), (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_offsets_of_no_topic_that_there_can_be_are_refused_at_once() -> None:
    play = Play(served=SERVED, homes=OURS)
    play.ask(TxnOffsetCommitRequest("id", "g", 4000, 3, topics=[_offset(name) for name in ILLEGAL]), 3)
    assert not play.session.commands
    codes = {row.error_code for topic in play.answer().topics for row in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_topics_that_are_named_by_ids_are_left_to_the_coordinator() -> None:
    play = Play(served=SERVED, homes=OURS)
    rows = [TxnOffsetCommitRequestPartition(0, 5)]
    topics = [TxnOffsetCommitRequestTopic(topic_id=bytes([n]) * 16, partitions=rows) for n in range(3)]
    play.ask(TxnOffsetCommitRequest("id", "g", 4000, 3, topics=topics), 6)
    [call] = play.session.commands
    assert call.ask.request.topics == topics


def _offset(name: str) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(name, partitions=[TxnOffsetCommitRequestPartition(0, 5)])
