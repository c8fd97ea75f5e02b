from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.spark.fetching import Range, Reading, end_offset, record_sets
from kproxy.spark.kafka_cluster import KafkaCluster, TopicPartition
from kproxy.spark.spark_errors import DataLost, KafkaError
from kproxy.testing.fake_broker import Answer, Close, Edit
from tests.codec.message_sets import message_set
from tests.spark.fake_cluster import Fake, fake_cluster

T = TopicPartition("t", 0)
_MOST = 1 << 20
#: Kafka's own end marker of an abort.
_ABORT = Record(0, 0, bytes(4), bytes(6))


def _batch(base_offset: int, count: int = 5, **fields: Any) -> bytearray:
    records = [Record(number, number, b"k", b"%d" % (base_offset + number)) for number in range(count)]
    return build_batch(records, base_offset=base_offset, **fields)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster(brokers=2) as running:
        with running.client() as client:
            client.create_topic("t", 1, replication=2)
            for number in range(6):
                client.produce("t", 0, _batch(5 * number))
        yield running


def _how(**changes: Any) -> Reading:
    how = Reading(committed=True, fail_on_data_loss=True, fetch_bytes=1, patience_s=20)
    return how._replace(**changes)


def _offsets(cluster: KafkaCluster, start: int, end: int, **changes: Any) -> list[int]:
    return [
        record.offset
        for record_set in record_sets(cluster, Range(T, start, end), _how(**changes))
        for record in iter_records(record_set, max_decompressed_bytes=_MOST)
    ]


def _row(records: bytes, **fields: Any) -> Answer:
    row = FetchResponsePartitionData(partition_index=0, records=records, **{"high_watermark": 100, **fields})
    return Answer(FetchResponse(responses=[FetchResponseFetchableTopicResponse(topic="t", partitions=[row])]))


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("fetch_bytes", [1, 1 << 20])
def test_a_range_is_read_in_as_many_answers_as_it_takes(fake: Fake, committed: bool, fetch_bytes: int) -> None:
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 30, committed=committed, fetch_bytes=fetch_bytes) == list(range(30))
        # whole batches come; who reads cuts them
        assert _offsets(cluster, 7, 13, committed=committed) == list(range(5, 15))
        assert _offsets(cluster, 7, 7, committed=committed) == []


def test_one_fetch_is_in_flight_and_no_more(fake: Fake) -> None:
    asked = []
    fake.on(ApiKey.FETCH, lambda call: asked.append(call.request.topics[0].partitions[0].fetch_offset))
    with fake.cluster() as cluster:
        sets = record_sets(cluster, Range(T, 0, 30), _how())
        next(sets)
        next(sets)
        assert set(asked) <= {0, 5, 10}
        sets.close()  # type: ignore[attr-defined]
        assert _offsets(cluster, 25, 30) == list(range(25, 30))


@pytest.mark.parametrize("fault", [Close(), _row(b"", error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_what_passes_is_tried_again(fake: Fake, fault: Any) -> None:
    calls = iter([None, fault, fault, None, fault])
    fake.on(ApiKey.FETCH, lambda call: next(calls, None))
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 30) == list(range(30))


def test_the_leader_moves_in_the_middle(fake: Fake) -> None:
    found = []
    with fake.cluster() as cluster:
        for record_set in record_sets(cluster, Range(T, 0, 30), _how()):
            found += [record.offset for record in iter_records(record_set, max_decompressed_bytes=_MOST)]
            leader = fake.do(lambda server: server.cluster.topics["t"].partitions[0].leader)
            fake.do(lambda server, to=3 - leader: server.cluster.move_leader("t", 0, to))
    assert found == list(range(30))


def test_an_error_that_does_not_pass_is_reported(fake: Fake) -> None:
    fake.on(ApiKey.FETCH, lambda call: _row(b"", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with fake.cluster() as cluster, pytest.raises(KafkaError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        _offsets(cluster, 0, 30)


def test_deleted_records_are_reported_or_skipped(fake: Fake) -> None:
    fake.do(lambda server: server.cluster.topics["t"].partitions[0].log.delete_before(15))
    with fake.cluster() as cluster:
        with pytest.raises(DataLost, match="t-0: the records from offset 5 to 14 no longer exist; set failOnDataLoss"):
            _offsets(cluster, 5, 30)
        assert _offsets(cluster, 5, 30, fail_on_data_loss=False) == list(range(15, 30))
        assert _offsets(cluster, 5, 10, fail_on_data_loss=False) == []


def test_a_log_that_is_shorter_than_the_range_is_loss(fake: Fake) -> None:
    with fake.cluster() as cluster:
        with pytest.raises(DataLost, match="from offset 40 to 49 no longer exist"):
            _offsets(cluster, 40, 50)
        assert _offsets(cluster, 40, 50, fail_on_data_loss=False) == []


def test_what_kafkas_own_transactions_aborted_is_left_out(fake: Fake) -> None:
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    records = _batch(0) + _batch(5, **mine)
    records += build_batch([_ABORT], base_offset=10, is_control=True, is_transactional=True, producer_id=7)
    records += _batch(11, **mine) + _batch(16, 4)
    aborted = [FetchResponseAbortedTransaction(producer_id=7, first_offset=5)]
    fake.on(ApiKey.FETCH, lambda call: _row(bytes(records), aborted_transactions=aborted))
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 20) == [*range(5), *range(11, 20)]
        assert _offsets(cluster, 0, 20, committed=False) == [*range(10), *range(11, 20)]


def test_what_is_hidden_after_a_batch_takes_nothing_of_it(fake: Fake) -> None:
    records = _batch(0) + _batch(5, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    records += build_batch([_ABORT], base_offset=10, is_control=True, is_transactional=True, producer_id=7)
    aborted = [FetchResponseAbortedTransaction(producer_id=7, first_offset=5)]
    fake.on(ApiKey.FETCH, lambda call: _row(bytes(records), aborted_transactions=aborted))
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 11) == list(range(5))


def test_hidden_records_at_the_end_do_not_stall(fake: Fake) -> None:
    marker = build_batch([_ABORT], base_offset=99, is_control=True, is_transactional=True)
    sets = iter([_row(bytes(_batch(0))), _row(bytes(marker))])
    fake.on(ApiKey.FETCH, lambda call: next(sets))
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 100) == list(range(5))


def test_an_end_that_compaction_took_does_not_stall(fake: Fake) -> None:
    def answer(call: Any) -> Answer:
        request: FetchRequest = call.request
        return _row(bytes(_batch(0)) if request.topics[0].partitions[0].fetch_offset < 5 else b"")

    fake.on(ApiKey.FETCH, answer)
    for committed in (True, False):
        with fake.cluster() as cluster:
            assert _offsets(cluster, 0, 100, committed=committed) == list(range(5))


def test_what_is_hidden_for_now_is_waited_for_with_patience(fake: Fake) -> None:
    def answer(call: Any) -> Answer:
        request: FetchRequest = call.request
        return _row(b"" if request.isolation_level else bytes(_batch(0)))

    control = fake.do(lambda server: server.cluster.control(ApiKey.FETCH, answer))
    with fake.cluster() as cluster:
        with pytest.raises(KafkaError, match=r"t-0: offsets 0 to 29 did not come in 0\.05 s"):
            _offsets(cluster, 0, 30, patience_s=0.05)
        sets = record_sets(cluster, Range(T, 0, 30), _how(patience_s=20))
        fake.do(lambda server: server.cluster.controls.remove(control))
        assert len(list(sets)) == 6


def test_an_answer_without_the_partition_is_tried_again(fake: Fake) -> None:
    fake.on(ApiKey.FETCH, lambda call: Answer(FetchResponse()), times=1)
    with fake.cluster() as cluster:
        assert _offsets(cluster, 0, 30) == list(range(30))


def test_damage_is_reported_with_its_place(fake: Fake) -> None:
    def damage(answer: Any) -> None:
        answer.responses[0].partitions[0].records = b"\0" * 60

    fake.on(ApiKey.FETCH, lambda call: Edit(damage))
    with fake.cluster() as cluster, pytest.raises(KafkaError, match="t-0 at offset 3"):
        _offsets(cluster, 3, 30)


def test_after_the_last_whole_batch() -> None:
    old = message_set([(1, None, b"a"), (2, None, b"b")], 1, 0, start=40)
    assert end_offset(bytes(_batch(30)) + old, 3) == 42
    assert end_offset(bytes(_batch(30)) + old[:-1], 3) == 41
    assert end_offset(b"", 3) == 3
