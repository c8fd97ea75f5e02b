"""Fetch: whole first batch, byte cuts after it, long polls, and errors."""

import threading
import time

import pytest

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchRequestFetchPartition,
    FetchRequestFetchTopic,
    FetchResponse,
    FetchResponsePartitionData,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import batch, values
from tests.support.patience import PATIENCE_S

_LONG_MS = 600_000
"""Far longer than a client waits for a response."""


def _partition(answer: FetchResponse, index: int = 0) -> FetchResponsePartitionData:
    return answer.responses[0].partitions[index]


def _topic_id(client: ClusterClient, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return client.any_broker().call(request, 12, MetadataResponse).topics[0].topic_id


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_the_same(client: ClusterClient, topic: str, version: int) -> None:
    client.produce(topic, 0, batch(b"a"))
    client.produce(topic, 0, batch(b"b", b"c"))
    part = FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchRequestFetchTopic(topic=topic, partitions=[part])
    if version >= 13:
        wanted = FetchRequestFetchTopic(topic_id=_topic_id(client, topic), partitions=[part])
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
    answer = _partition(client.leader(topic, 0).call(request, version, FetchResponse))
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (ErrorCode.NONE, 3, 3)
    assert values(bytes(answer.records or b"")) == [b"a", b"b", b"c"]
    assert answer.aborted_transactions is None


def test_read_committed_has_a_list_of_aborted_transactions(client: ClusterClient, topic: str) -> None:
    client.produce(topic, 0, batch(b"a"))
    answer = _partition(client.fetch(topic, 0, 0, isolation_level=1))
    assert (answer.aborted_transactions, answer.last_stable_offset) == ([], 1)


def test_an_offset_inside_a_batch_gives_the_whole_batch(client: ClusterClient, topic: str) -> None:
    client.produce(topic, 0, batch(b"a"))
    client.produce(topic, 0, batch(b"b", b"c", b"d"))
    assert values(bytes(_partition(client.fetch(topic, 0, 2)).records or b"")) == [b"b", b"c", b"d"]


@pytest.mark.parametrize("extra", [-50, 0, 1, 40])
def test_the_first_batch_is_whole_and_the_rest_is_cut_by_bytes(client: ClusterClient, topic: str, extra: int) -> None:
    first, second = batch(bytes(100)), batch(bytes(200))
    client.produce(topic, 0, first)
    client.produce(topic, 0, second)
    answer = _partition(client.fetch(topic, 0, 0, max_bytes=len(first) + extra))
    assert len(answer.records or b"") == len(first) + max(extra, 0)


def test_request_limit_spans_partitions(client: ClusterClient, topic: str) -> None:
    data = batch(bytes(1000))
    for index in (0, 1):
        client.produce(topic, index, data)
    parts = [FetchRequestFetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in (0, 1)]
    topics = [FetchRequestFetchTopic(topic=topic, partitions=parts)]
    for limit, sizes in (
        (len(data) // 2, [len(data), 0]),
        (len(data) + 10, [len(data), 0]),
        (1 << 20, [len(data)] * 2),
    ):
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=limit, topics=topics)
        answer = client.leader(topic, 0).call(request, 11, FetchResponse)
        assert [len(_partition(answer, index).records or b"") for index in (0, 1)] == sizes


def test_a_poll_at_the_end_waits_its_time(client: ClusterClient, topic: str) -> None:
    begin = time.monotonic()
    answer = _partition(client.fetch(topic, 0, 0, max_wait_ms=300))
    assert time.monotonic() - begin >= 0.29
    assert (answer.error_code, bytes(answer.records or b"")) == (ErrorCode.NONE, b"")


def test_a_poll_ends_when_data_comes(client: ClusterClient, bootstrap: str, topic: str) -> None:
    answers: list[FetchResponse] = []

    def poll() -> None:
        with ClusterClient(bootstrap) as other:
            answers.append(other.fetch(topic, 0, 0, max_wait_ms=_LONG_MS))

    thread = threading.Thread(target=poll)
    thread.start()
    time.sleep(0.2)
    client.produce(topic, 0, batch(b"a"))
    thread.join(PATIENCE_S)
    assert values(bytes(_partition(answers[0]).records or b"")) == [b"a"]


def test_a_poll_waits_for_min_bytes(client: ClusterClient, topic: str) -> None:
    client.produce(topic, 0, batch(b"a"))
    begin = time.monotonic()
    answer = client.fetch(topic, 0, 0, max_wait_ms=300, min_bytes=10_000)
    assert time.monotonic() - begin >= 0.29
    assert values(bytes(_partition(answer).records or b"")) == [b"a"]


@pytest.mark.parametrize("offset", [2, 1000, -1])
def test_an_offset_outside_the_log_is_an_error_at_once(client: ClusterClient, topic: str, offset: int) -> None:
    client.produce(topic, 0, batch(b"a"))
    answer = _partition(client.fetch(topic, 0, offset, max_wait_ms=_LONG_MS))
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_unknown_places(client: ClusterClient, topic: str) -> None:
    part = FetchRequestFetchPartition(partition=9, fetch_offset=0, partition_max_bytes=1000)
    for name in (topic, "contract-no-such-topic"):
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequestFetchTopic(topic=name, partitions=[part])])
        answer = client.any_broker().call(request, 11, FetchResponse)
        assert _partition(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = FetchRequest(max_wait_ms=0, topics=[FetchRequestFetchTopic(topic_id=b"\x01" * 16, partitions=[part])])
    answer = client.any_broker().call(request, 13, FetchResponse)
    assert _partition(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs(client: ClusterClient, topic: str) -> None:
    for epoch, error in ((0, ErrorCode.NONE), (-1, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        part = FetchRequestFetchPartition(
            partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1000
        )
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequestFetchTopic(topic=topic, partitions=[part])])
        answer = client.any_broker().call(request, 11, FetchResponse)
        assert ErrorCode(_partition(answer).error_code) is error


def test_an_unknown_session_is_refused(client: ClusterClient, topic: str) -> None:
    answer = client.any_broker().call(FetchRequest(session_id=12345, session_epoch=1), 11, FetchResponse)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
