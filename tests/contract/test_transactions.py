"""Brokers' own transactions, as clients of both protocols meet them: KIP-98's, and KIP-890's whose epoch rises."""

import time
from functools import partial
from typing import Any

import pytest

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestAddPartitionsToTxnTopic,
    AddPartitionsToTxnResponse,
)
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransactionState,
)
from kproxy.codec._generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import ClusterClient
from tests.contract.batches import batch
from tests.contract.coordinators import GROUP, TRANSACTION, find_coordinator
from tests.contract.native_producer import NONE, TV1, TV2, NativeProducer, committed_offset, until
from tests.support.patience import PATIENCE_S, eventually, repeat_while


@pytest.fixture(params=[TV1, TV2], ids=["TV1", "TV2"])
def producer(client: ClusterClient, unique: str, topic: str, request: pytest.FixtureRequest) -> NativeProducer:
    made = NativeProducer(client, unique, topic, request.param)
    made.init()
    return made


def _older(newer: NativeProducer, epoch: int, sequence: int = 0) -> NativeProducer:
    """The same transactional id, as a producer of an epoch."""
    who = (newer.producer[0], epoch)
    return NativeProducer(newer.client, newer.name, newer.topic, newer.protocol, producer=who, sequences={0: sequence})


def _markers(producer: NativeProducer, index: int = 0) -> list[tuple[int, int, bool]]:
    """Offset, epoch and decision of each."""
    data, found = producer.client.read_all(producer.topic, index), []
    while data:
        header = read_header(data)
        if header.is_control:
            assert header.is_transactional
            assert header.producer_id == producer.producer[0]
            (record,) = iter_records(data[: header.size], max_decompressed_bytes=100, include_control=True)
            assert record.key is not None
            found.append((header.base_offset, header.producer_epoch, record.key[3] == 1))
        data = data[header.size :]
    return found


def _aborted(producer: NativeProducer, offset: int) -> list[int]:
    """The first offsets of the aborted transactions that a Fetch names."""
    answer = producer.client.fetch(producer.topic, 0, offset, isolation_level=1)
    rows = answer.responses[0].partitions[0].aborted_transactions
    assert rows is not None
    assert all(row.producer_id == producer.producer[0] for row in rows)
    return [row.first_offset for row in rows]


@pytest.mark.parametrize("version", [3, 4])
def test_the_level_that_the_cluster_has_agreed_on_is_reported(client: ClusterClient, version: int) -> None:
    answer = client.any_broker().call(ApiVersionsRequest("kproxy", "1"), version, ApiVersionsResponse)
    levels = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
    assert levels["transaction.version"] == (2, 2)
    supported = {row.name: (row.min_version, row.max_version) for row in answer.supported_features}
    assert supported.get("transaction.version") == ((0, 2) if version == 4 else None)


def test_what_is_open_lies_above_the_last_stable_offset(producer: NativeProducer) -> None:
    producer.write(b"a", 0, 1)
    assert (producer.stable(), producer.stable(1), producer.client.offset(producer.topic, 0)) == (0, 0, 1)
    answer = producer.client.fetch(producer.topic, 0, 0, isolation_level=1).responses[0].partitions[0]
    assert (answer.high_watermark, answer.last_stable_offset) == (1, 0)
    assert (answer.aborted_transactions, answer.records or b"") == ([], b"")
    wanted = DescribeProducersRequestTopicRequest(name=producer.topic, partition_indexes=[0])
    told = producer.client.any_broker().call(DescribeProducersRequest(topics=[wanted]), 0, DescribeProducersResponse)
    assert [row.current_txn_start_offset for row in told.topics[0].partitions[0].active_producers] == [0]


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_an_end_writes_a_marker_to_each_partition(producer: NativeProducer, committed: bool) -> None:
    pid, epoch = producer.producer
    producer.write(b"a", 0, 1)
    assert producer.end(committed=committed) is NONE
    assert [producer.settle(index) for index in (0, 1)] == [2, 2]
    raised = epoch + producer.protocol.bumps
    assert _markers(producer) == _markers(producer, 1) == [(1, raised, committed)]
    assert producer.producer == (pid, raised)


def test_what_was_aborted_is_named_from_where_is_read(producer: NativeProducer) -> None:
    for values, committed in (((b"a", b"b"), False), ((b"c",), True), ((b"d",), False)):
        for value in values:
            producer.write(value)
        assert producer.end(committed=committed) is NONE
        producer.settle()
    assert [_aborted(producer, offset) for offset in range(8)] == [[0, 5]] * 3 + [[5]] * 4 + [[]]
    answer = producer.client.fetch(producer.topic, 0, 0).responses[0].partitions[0]
    assert (answer.aborted_transactions, answer.last_stable_offset) == (None, 7)


def test_a_repeated_end_is_a_success_and_the_other_one_is_not(producer: NativeProducer) -> None:
    for committed in (True, False):
        producer.write(b"a")
        assert until(lambda committed=committed: producer.ask_end(committed=committed)[0]) is NONE  # type: ignore[misc]
        producer.settle()
        told = _ended_again(producer, committed=committed)
        assert producer.ask_end(committed=not committed)[0] is ErrorCode.INVALID_TXN_STATE
        assert producer.client.offset(producer.topic, 0) == (2 if committed else 4)
        if producer.protocol.bumps:
            assert told == (producer.producer[0], producer.producer[1] + 1)
            producer.producer, producer.sequences = told, {}


def _ended_again(producer: NativeProducer, *, committed: bool) -> tuple[int, int]:
    """The response to a repeated end. The markers are there; a coordinator of Kafka may still have to note that."""
    answers = []

    def ask() -> ErrorCode:
        answers.append(producer.ask_end(committed=committed))
        return answers[-1][0]

    assert until(ask) is NONE
    return answers[-1][1]


def test_where_nothing_was_begun_only_raising_clients_may_abort(producer: NativeProducer) -> None:
    pid, epoch = producer.producer
    assert producer.ask_end() == (ErrorCode.INVALID_TXN_STATE, (-1, -1))
    error, told = producer.ask_end(committed=False)
    if not producer.protocol.bumps:
        assert error is ErrorCode.INVALID_TXN_STATE
        return
    assert (error, told) == (NONE, (pid, epoch + 1))
    producer.producer = told
    assert until(lambda: producer.ask_end()[0]) is ErrorCode.INVALID_TXN_STATE
    assert producer.end(committed=False) is NONE
    assert producer.producer == (pid, epoch + 2)


def test_who_asks_for_the_id_aborts_what_is_open_and_fences(producer: NativeProducer) -> None:
    producer.write(b"a")
    pid, epoch = producer.producer
    older = _older(producer, epoch, 1)
    assert producer.ask_init() is ErrorCode.CONCURRENT_TRANSACTIONS
    producer.init()
    assert producer.producer == (pid, epoch + 2)
    assert _markers(producer) == [(1, epoch + 1, False)]
    find_coordinator(producer.client, producer.name, GROUP)
    assert older.ask_produce(older.batch(b"late")) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert until(lambda: older.ask_offsets(older.name, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert older.ask_end()[0] is ErrorCode.PRODUCER_FENCED
    assert (older.add(0), older.add(0, version=1)) == (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert older.ask_init(named=True) is ErrorCode.PRODUCER_FENCED
    assert older.ask_init(named=True, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_who_names_itself_asks_again_and_receives_the_same(producer: NativeProducer) -> None:
    producer.write(b"a")
    pid, epoch = producer.producer
    assert producer.ask_init(named=True) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert until(lambda: producer.ask_init(named=True)) is NONE
    assert producer.producer == (pid, epoch + 1)
    assert producer.ask_init(named=True) is NONE
    assert producer.producer == (pid, epoch + 2)
    again = _older(producer, epoch + 1)
    assert again.ask_init(named=True) is NONE
    assert again.producer == (pid, epoch + 2)


@pytest.mark.parametrize("who", ["another producer id", "an id that nobody has asked for", "a newer epoch"])
def test_others_are_refused(producer: NativeProducer, who: str) -> None:
    find_coordinator(producer.client, producer.name, GROUP)
    pid, epoch = producer.producer
    fenced, old = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if who == "another producer id":
        producer.producer = (pid + 100_000, epoch)
    elif who == "a newer epoch":
        producer.producer = (pid, epoch + 1)
        fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        producer.name = f"nobody-{producer.name}"
    group = producer.topic
    assert (producer.add(0), producer.add_group(group)) == (fenced, fenced)
    assert until(lambda: producer.ask_end()[0]) is fenced
    assert producer.ask_produce(producer.batch(b"a")) is old
    assert until(lambda: producer.ask_offsets(group, 1)) is old


def test_a_partition_that_there_is_not_lets_none_join(producer: NativeProducer) -> None:
    wanted = AddPartitionsToTxnRequestAddPartitionsToTxnTopic(producer.topic, [0, 9])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.producer[0],
        v3_and_below_producer_epoch=producer.producer[1],
        v3_and_below_topics=[wanted],
    )
    answer = producer.client.any_broker().call(request, 3, AddPartitionsToTxnResponse)
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert {row.partition_index: row.partition_error_code for row in rows} == {
        0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.ask_end()[0] is ErrorCode.INVALID_TXN_STATE


def test_partitions_join_by_being_written_in_the_second_protocol_only(producer: NativeProducer) -> None:
    joins = producer.protocol.bumps
    error = producer.ask_produce(producer.batch(b"a"))
    assert error is (NONE if joins else ErrorCode.TRANSACTION_ABORTABLE)
    assert producer.ask_end()[0] is (NONE if joins else ErrorCode.INVALID_TXN_STATE)


def test_an_unknown_producer_begins_at_0_in_the_second_protocol(producer: NativeProducer) -> None:
    assert producer.add(0) is NONE
    error = producer.ask_produce(producer.batch(b"a", seq=5))
    assert error is (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if producer.protocol.bumps else NONE)


def test_what_is_late_is_refused(producer: NativeProducer) -> None:
    producer.write(b"a")
    late, repeated = producer.batch(b"b"), producer.batch(b"a", seq=0)
    assert producer.end() is NONE
    producer.settle()
    error = ErrorCode.INVALID_PRODUCER_EPOCH if producer.protocol.bumps else ErrorCode.TRANSACTION_ABORTABLE
    assert [producer.ask_produce(late), producer.ask_produce(repeated)] == [error, error]
    assert producer.client.offset(producer.topic, 0) == 2


def test_the_first_protocol_lets_what_is_late_into_the_next_transaction(client: ClusterClient, topic: str) -> None:
    """KAFKA-17754's kin: nothing tells the two apart."""
    producer = NativeProducer(client, topic, topic, TV1)
    producer.init()
    producer.write(b"a")
    late = producer.batch(b"late")
    assert producer.end() is NONE
    producer.settle()
    assert producer.add(0) is NONE
    assert producer.ask_produce(late) is NONE


def test_within_a_transaction_repeats_are_known_and_plain_batches_refused(producer: NativeProducer) -> None:
    producer.write(b"a")
    pid, epoch = producer.producer
    assert producer.ask_produce(producer.batch(b"a", seq=0)) is NONE
    plain = producer.client.produce(producer.topic, 0, batch(b"x", pid=pid, epoch=epoch, seq=1))
    assert plain.error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.client.offset(producer.topic, 0) == 1


def test_groups_join_by_a_commit_in_the_second_protocol(producer: NativeProducer) -> None:
    group = producer.name
    find_coordinator(producer.client, group, GROUP)
    assert producer.offsets(group, 5) is NONE
    assert committed_offset(producer.client, group, producer.topic) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    everything = OffsetFetchRequest(group, None, require_stable=True)
    assert producer.client.any_broker().call(everything, 7, OffsetFetchResponse).topics == []
    assert producer.end() is NONE
    producer.init()  # answers when the end is complete
    assert committed_offset(producer.client, group, producer.topic) == (5, NONE)


def _has_marker(client: ClusterClient, topic: str, index: int) -> bool:
    return client.offset(topic, index) == 2


def test_what_takes_too_long_is_aborted_and_fenced(client: ClusterClient, topic: str) -> None:
    both = [NativeProducer(client, f"{topic}-{at}", topic, protocol, 100) for at, protocol in enumerate((TV1, TV2))]
    for index, producer in enumerate(both):
        producer.init()
        producer.write(b"a", index)
    for index, producer in enumerate(both):
        # a real coordinator looks every 10 s
        eventually(partial(_has_marker, client, topic, index))
        producer.settle(index)
        pid, epoch = producer.producer
        assert _markers(producer, index) == [(1, epoch + 1, False)]
        assert producer.ask_produce(producer.batch(b"b", index), index) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert producer.add(index) is ErrorCode.PRODUCER_FENCED
        if producer.protocol.bumps:  # it looks like a repeated end of the transaction before
            assert producer.ask_end()[0] is ErrorCode.INVALID_TXN_STATE
            assert producer.ask_end(committed=False) == (NONE, (pid, epoch + 1))
        else:
            assert producer.ask_end()[0] is producer.ask_end(committed=False)[0] is ErrorCode.PRODUCER_FENCED
        producer.init()
        assert producer.producer == (pid, epoch + 2)


def _described(producer: NativeProducer, name: str) -> DescribeTransactionsResponseTransactionState:
    find_coordinator(producer.client, name, TRANSACTION)
    answer = producer.client.any_broker().call(DescribeTransactionsRequest([name]), 0, DescribeTransactionsResponse)
    (row,) = answer.transaction_states
    return row


def test_a_coordinator_describes_what_is_open_and_how_it_ended(producer: NativeProducer) -> None:
    row = _described(producer, producer.name)
    assert (row.error_code, row.transaction_state, row.transaction_start_time_ms, row.topics) == (0, "Empty", -1, [])
    assert (row.producer_id, row.producer_epoch) == producer.producer
    producer.write(b"a", 0, 1)
    row = _described(producer, producer.name)
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", *producer.producer)
    assert row.transaction_timeout_ms == 60_000
    assert abs(row.transaction_start_time_ms - time.time() * 1000) < PATIENCE_S * 1000
    assert [(topic.topic, sorted(topic.partitions)) for topic in row.topics] == [(producer.topic, [0, 1])]
    for committed, state in ((True, "CompleteCommit"), (False, "CompleteAbort")):
        producer.write(b"a")
        assert producer.end(committed=committed) is NONE
        producer.settle()
        row = repeat_while(
            lambda row: row.transaction_state.startswith("Prepare"), partial(_described, producer, producer.name)
        )
        assert (row.transaction_state, row.topics) == (state, [])
        assert (row.producer_id, row.producer_epoch) == producer.producer


def test_an_id_that_nobody_knows_is_not_described(producer: NativeProducer) -> None:
    row = _described(producer, f"{producer.name}-other")
    assert (row.error_code, row.transaction_state) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "")


def test_a_coordinator_lists_what_is_open(producer: NativeProducer) -> None:
    find_coordinator(producer.client, producer.name, TRANSACTION)

    def listed(**filters: list[Any]) -> list[tuple[int, str]]:
        request = ListTransactionsRequest(**filters)
        answer = producer.client.any_broker().call(request, 0, ListTransactionsResponse)
        assert answer.error_code == 0
        return [
            (row.producer_id, row.transaction_state)
            for row in answer.transaction_states
            if row.transactional_id == producer.name
        ]

    pid = producer.producer[0]
    assert listed() == [(pid, "Empty")]
    assert listed(state_filters=["Ongoing"]) == []
    producer.write(b"a")
    assert listed(state_filters=["Ongoing", "PrepareCommit"]) == [(pid, "Ongoing")]
    assert listed(producer_id_filters=[pid]) == [(pid, "Ongoing")]
    assert listed(producer_id_filters=[pid + 1]) == []
