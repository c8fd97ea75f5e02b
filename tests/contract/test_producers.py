"""InitProducerId, DescribeProducers and WriteTxnMarkers: what brokers know of producers."""

import pytest

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.codec.batch import read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import START_MS, batch
from tests.contract.coordinators import init_transactional_id
from tests.support.patience import repeat_while

PID = 2**62 + 17


def _producers(client: ClusterClient, topic: str, index: int = 0) -> list[tuple[int, int, int, int]]:
    wanted = DescribeProducersRequestTopicRequest(name=topic, partition_indexes=[index])
    answer = client.any_broker().call(DescribeProducersRequest(topics=[wanted]), 0, DescribeProducersResponse)
    part = answer.topics[0].partitions[0]
    assert part.error_code == ErrorCode.NONE
    assert all(found.current_txn_start_offset == -1 for found in part.active_producers)
    return sorted(
        (found.producer_id, found.producer_epoch, found.last_sequence, found.last_timestamp)
        for found in part.active_producers
    )


def _mark(client: ClusterClient, topic: str, epoch: int, pid: int = PID, index: int = 0) -> ErrorCode:
    wanted = WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=[index])
    marker = WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=pid, producer_epoch=epoch, transaction_result=False, topics=[wanted], coordinator_epoch=0
    )
    answer = client.any_broker().call(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_describe_producers_tells_the_last_batch(client: ClusterClient, topic: str) -> None:
    assert _producers(client, topic) == []
    client.produce(topic, 0, batch(b"a", b"b", pid=PID, epoch=1, seq=7))
    client.produce(topic, 0, batch(b"c", b"d", pid=PID, epoch=1, seq=9, first_ms=START_MS + 50))
    client.produce(topic, 0, batch(b"c", pid=3, epoch=0, seq=2**31 - 1))
    client.produce(topic, 0, batch(b"no producer"))
    assert _producers(client, topic) == [(3, 0, 2**31 - 1, START_MS), (PID, 1, 10, START_MS + 51)]
    assert _producers(client, topic, 1) == []


def test_describe_producers_of_unknown_places(client: ClusterClient, topic: str) -> None:
    for name in (topic, "contract-no-such-topic"):
        wanted = DescribeProducersRequestTopicRequest(name=name, partition_indexes=[9])
        answer = client.any_broker().call(DescribeProducersRequest(topics=[wanted]), 0, DescribeProducersResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_marker_fences_older_epochs(client: ClusterClient, topic: str) -> None:
    assert client.produce(topic, 0, batch(b"a", pid=PID, epoch=0, seq=0)).error_code == ErrorCode.NONE
    assert _mark(client, topic, 1) is ErrorCode.NONE
    assert client.offset(topic, 0) == 2
    control = client.read_all(topic)[len(batch(b"a")) :]
    assert read_header(control).attributes & 0x30 == 0x30
    assert (read_header(control).producer_id, read_header(control).producer_epoch) == (PID, 1)
    assert client.produce(topic, 0, batch(b"b", pid=PID, epoch=0, seq=1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, 0, batch(b"a", pid=PID, epoch=0, seq=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    late = client.produce(topic, 0, batch(b"b", pid=PID, epoch=1, seq=1))
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, 0, batch(b"b", pid=PID, epoch=1, seq=0)).error_code == ErrorCode.NONE


def test_a_marker_fences_a_producer_never_seen(client: ClusterClient, topic: str) -> None:
    assert _mark(client, topic, 5) is ErrorCode.NONE
    assert client.produce(topic, 0, batch(b"a", pid=PID, epoch=4, seq=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, 0, batch(b"a", pid=PID, epoch=5, seq=0)).error_code == ErrorCode.NONE


def test_a_marker_may_be_repeated_but_not_lowered(client: ClusterClient, topic: str) -> None:
    assert _mark(client, topic, 5) is ErrorCode.NONE
    assert _mark(client, topic, 5) is ErrorCode.NONE
    assert _mark(client, topic, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.offset(topic, 0) == 2


def test_after_a_marker_its_epoch_has_no_sequence_yet(client: ClusterClient, topic: str) -> None:
    client.produce(topic, 0, batch(b"a", b"b", pid=PID, epoch=0, seq=0))
    assert _mark(client, topic, 1) is ErrorCode.NONE
    ((pid, epoch, sequence, _),) = _producers(client, topic)
    assert (pid, epoch, sequence) == (PID, 1, -1)


def test_a_marker_of_the_epoch_in_use_disturbs_nothing(client: ClusterClient, topic: str) -> None:
    assert client.produce(topic, 0, batch(b"a", pid=PID, epoch=5, seq=0)).error_code == ErrorCode.NONE
    assert _mark(client, topic, 5) is ErrorCode.NONE
    assert client.produce(topic, 0, batch(b"b", pid=PID, epoch=5, seq=1)).error_code == ErrorCode.NONE
    again = client.produce(topic, 0, batch(b"b", pid=PID, epoch=5, seq=1))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 2)
    assert client.offset(topic, 0) == 3


def test_one_request_marks_many_producers_on_many_partitions(client: ClusterClient, topic: str) -> None:
    places = [WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=[0, 1])]
    markers = [
        WriteTxnMarkersRequestWritableTxnMarker(
            producer_id=pid, producer_epoch=1, transaction_result=False, topics=places, coordinator_epoch=0
        )
        for pid in (PID, PID + 1)
    ]
    answer = client.any_broker().call(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)
    told = {
        (marker.producer_id, part.partition_index): part.error_code
        for marker in answer.markers
        for row in marker.topics
        for part in row.partitions
    }
    assert told == {(pid, index): ErrorCode.NONE for pid in (PID, PID + 1) for index in (0, 1)}
    for pid, index in told:
        fenced = client.produce(topic, index, batch(b"a", pid=pid, epoch=0, seq=0))
        assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_for_nowhere(client: ClusterClient, topic: str) -> None:
    assert _mark(client, topic, 1, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _new_producer(client: ClusterClient, version: int) -> InitProducerIdResponse:
    """A broker that just started has no block of ids yet, and says so."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    return repeat_while(
        lambda answer: answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        lambda: client.any_broker().call(request, version, InitProducerIdResponse),
    )


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(client: ClusterClient, version: int) -> None:
    first, second = (_new_producer(client, version) for _ in range(2))
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.NONE, 0, 0)
    assert 0 <= first.producer_id < second.producer_id


def test_a_transactional_id_keeps_its_producer_and_moves_its_epoch(client: ClusterClient, unique: str) -> None:
    first = init_transactional_id(client, unique)
    second = init_transactional_id(client, unique)
    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    assert first.producer_id == second.producer_id
    same = init_transactional_id(client, unique, producer_id=first.producer_id, epoch=1)
    assert (same.error_code, same.producer_id, same.producer_epoch) == (ErrorCode.NONE, first.producer_id, 2)
    for version, error in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)):
        fenced = init_transactional_id(client, unique, version, producer_id=first.producer_id, epoch=0)
        assert (fenced.error_code, fenced.producer_id) == (error, -1)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        ("contract-timeout", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("contract-timeout", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_bad_transactional_requests(client: ClusterClient, name: str, timeout_ms: int, error: ErrorCode) -> None:
    init_transactional_id(client, "contract-timeout")
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
    assert client.any_broker().call(request, 4, InitProducerIdResponse).error_code == error
