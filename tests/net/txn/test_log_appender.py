"""Appends to the transaction log: once, whatever happens on the way, and told as what it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio

from kproxy.codec._generated.delete_records import DeleteRecordsResponse
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import iter_records, read_header
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import Refused
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn import log_appender as module
from kproxy.net.txn.log_appender import AppendError, AppendFenced, AppendRefused, AppendUnknown, LogAppender
from kproxy.net.txn.log_topic import TOPIC
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import Answer, Close, CloseAfter, Drop, Edit, FakeCluster, FakeServer, open_fake_cluster
from tests.net.txn.log_harness import PATIENCE, PID, configured

pytestmark = pytest.mark.idle_clock

OPEN_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
NOT_NOW = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.CORRUPT_MESSAGE)
KV = [(b"k", b"v")]


class Writing(NamedTuple):
    """An appender and its fake cluster."""

    appender: LogAppender
    fake: FakeServer
    stats: Stats

    @property
    def brokers(self) -> FakeCluster:
        return self.fake.cluster

    async def append(self, sequence: int = 0, *, epoch: int = 0, pid: int = PID, partition: int = 0) -> int:
        with trio.fail_after(PATIENCE):
            return await self.appender.append(partition, pid, epoch, sequence, [(b"k", b"%d" % sequence)])

    def values(self, partition: int = 0) -> list[bytes | None]:
        log = self.brokers.topics[TOPIC].partitions[partition].log
        data = log.read(log.start_offset, 1 << 30, whole_first_batch=True)
        return [row.value for row in iter_records(data, max_decompressed_bytes=1 << 20)]


@asynccontextmanager
async def writing(brokers: int = 1, deadline_s: float = PATIENCE, **options: Any) -> AsyncIterator[Writing]:
    async with open_fake_cluster(brokers) as fake:
        fake.cluster.create_topic(TOPIC, 2, brokers, {"message.timestamp.type": "LogAppendTime"})
        config = configured(fake.bootstrap, **options)
        stats = Stats()
        cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
        appender = LogAppender(cluster, config, TOPIC, deadline_s)
        try:
            yield Writing(appender, fake, stats)
        finally:
            appender.close()
            cluster.close()


def _error(code: int, base_offset: int = -1) -> Any:
    """A response without an attempt to write."""
    part = ProduceResponsePartitionProduceResponse(error_code=code, base_offset=base_offset)
    response = ProduceResponse(responses=[ProduceResponseTopicProduceResponse(name=TOPIC, partition_responses=[part])])
    return lambda _: Answer(response)


def _says(code: int) -> Any:
    """The error, of what was written."""

    def change(message: Any) -> None:
        row = message.responses[0].partition_responses[0]
        row.error_code, row.base_offset = code, -1

    return lambda _: Edit(change)


async def test_a_batch_is_written_as_it_was_asked_for_and_its_offset_told() -> None:
    asked: list[Any] = []
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, lambda call: asked.append(call.request))
        assert await log.appender.append(1, PID, 3, 0, [(b"k", b"a"), (None, b"b"), (b"x", None)]) == 0
        assert await log.append(3, epoch=3, partition=1) == 3
        data = log.brokers.topics[TOPIC].partitions[1].log.read(0, 1 << 20, whole_first_batch=True)
        header = read_header(data)
        rows = list(iter_records(data, max_decompressed_bytes=1 << 20))
        assert [(row.key, row.value) for row in rows][:3] == [(b"k", b"a"), (None, b"b"), (b"x", None)]
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PID, 3, 0)
        assert header.is_log_append_time
        assert not header.is_transactional
        assert {request.acks for request in asked} == {-1}
        assert len(asked) == 2
        assert not log.stats.upstream.errors


async def test_without_a_producer() -> None:
    async with writing() as log:
        assert await log.appender.append_unfenced(0, KV) == 0
        assert await log.appender.append_unfenced(0, KV) == 1
        data = log.brokers.topics[TOPIC].partitions[0].log.read(0, 1 << 20, whole_first_batch=True)
        assert read_header(data).producer_id == -1


@pytest.mark.parametrize(
    "fault",
    [
        lambda _: Close(),
        lambda _: CloseAfter(),
        *map(_error, (*OPEN_ERRORS, *NOT_NOW)),
        *map(_says, OPEN_ERRORS),
        lambda _: Answer(ProduceResponse()),
    ],
)
async def test_it_is_sent_again_as_it_is_until_the_answer_is_definite_and_is_there_once(fault: Any) -> None:
    sent: list[bytes] = []
    async with writing(2) as log:
        assert await log.append(0) == 0
        log.brokers.control(
            ApiKey.PRODUCE, lambda call: sent.append(bytes(call.request.topic_data[0].partition_data[0].records))
        )
        log.brokers.control(ApiKey.PRODUCE, fault, times=3)
        assert await log.append(1) == 1
        assert await log.append(2) == 2
        assert log.values() == [b"0", b"1", b"2"]
        assert len(set(sent[:-1])) == 1
        assert log.stats.upstream.errors["transaction_state_log"] == 3


async def test_one_that_was_there_already_is_a_success_at_its_offset() -> None:
    async with writing() as log:
        for sequence in range(3):
            await log.append(sequence)
        assert await log.append(1) == 1
        assert log.values() == [b"0", b"1", b"2"]


async def test_a_fenced_writer_gets_its_error_without_further_attempts() -> None:
    asked: list[int] = []
    async with writing() as log:
        await log.append(epoch=5)
        log.brokers.control(ApiKey.PRODUCE, lambda call: asked.append(call.version))
        with pytest.raises(AppendFenced) as caught:
            await log.append(epoch=4)
        assert caught.value.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(asked) == 1
        assert not log.stats.upstream.errors, "a fence is no fault of the brokers"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
)
async def test_a_refusal_is_definite_unless_an_attempt_before_is_open(code: int) -> None:
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, _error(code), times=1)
        with pytest.raises(AppendRefused) as caught:
            await log.append(0)
        assert caught.value.error_code == code
        log.brokers.control(ApiKey.PRODUCE, _error(ErrorCode.NOT_ENOUGH_REPLICAS), times=1)
        log.brokers.control(ApiKey.PRODUCE, _error(code), times=1)
        with pytest.raises(AppendRefused):
            await log.append(0)
        log.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        log.brokers.control(ApiKey.PRODUCE, _error(code), times=1)
        with pytest.raises(AppendUnknown):
            await log.append(0)
        assert log.values() == [b"0"]


async def test_an_error_is_no_success_though_it_comes_with_an_offset() -> None:
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, _error(ErrorCode.NOT_ENOUGH_REPLICAS, 7), times=1)
        assert await log.append(0) == 0
        assert log.values() == [b"0"]


async def test_a_sequence_that_leaves_a_gap_is_refused() -> None:
    async with writing() as log:
        await log.append(0)
        with pytest.raises(AppendRefused):
            await log.append(2)
        assert log.values() == [b"0"]


@pytest.mark.parametrize("code", [ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.NONE])
async def test_a_success_that_does_not_say_where_is_none(code: int) -> None:
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, _error(code), times=1)
        with pytest.raises(AppendUnknown):
            await log.append(0)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda _: Drop(), AppendUnknown),
        (lambda _: Close(), AppendUnknown),
        (_error(ErrorCode.REQUEST_TIMED_OUT), AppendUnknown),
        (_error(ErrorCode.NOT_ENOUGH_REPLICAS), AppendRefused),
    ],
)
async def test_the_time_is_limited_and_the_end_tells_whether_an_attempt_is_open(
    fault: Any, kind: type[AppendError]
) -> None:
    async with writing(deadline_s=2.0) as log:
        control = log.brokers.control(ApiKey.PRODUCE, fault)
        with pytest.raises(kind):
            await log.append(0)
        assert control.hits > 1, "a silent broker leaves time for another attempt"


async def test_without_a_leader_nothing_is_written_for_certain() -> None:
    async with writing(deadline_s=0.3) as log:
        await log.append(0)
        await log.fake.stop_broker(1)
        with pytest.raises(AppendUnknown):  # the connection that stood may have carried it
            await log.append(1)
        with pytest.raises(AppendRefused):
            await log.append(1)
        await log.fake.start_broker(1)
        assert await log.append(1) == 1


async def test_a_deleted_topic_is_what_the_error_says() -> None:
    async with writing(deadline_s=0.3) as log:
        log.brokers.delete_topic(TOPIC)
        with pytest.raises(AppendRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await log.append(0)


@pytest.mark.parametrize("oldest", [True, False], ids=["oldest", "newest"])
async def test_brokers_of_any_age_take_appends_and_deletions(oldest: bool) -> None:
    versions = {ApiKey.PRODUCE: (3, 8), ApiKey.DELETE_RECORDS: (0, 2)}
    asked: dict[ApiKey, int] = {}

    def old(message: Any) -> None:
        for row in message.api_keys:
            if row.api_key in versions:
                row.min_version, row.max_version = 0, versions[ApiKey(row.api_key)][0]

    async with writing() as log:
        if oldest:
            log.brokers.control(ApiKey.API_VERSIONS, lambda _: Edit(old))
        for key in versions:
            log.brokers.control(key, lambda call, key=key: asked.update({key: call.version}))
        await log.append(0)
        assert await log.appender.delete_records(0, 1) == 1
        assert asked == {key: (first if oldest else last) for key, (first, last) in versions.items()}


async def test_leaders_move_and_die() -> None:
    async with writing(3) as log:
        for sequence in range(6):
            part = log.brokers.topics[TOPIC].partitions[0]
            log.brokers.move_leader(TOPIC, 0, part.leader % 3 + 1)
            assert await log.append(sequence) == sequence
        await log.fake.stop_broker(log.brokers.topics[TOPIC].partitions[0].leader)
        assert await log.append(6) == 6
        assert log.values() == [b"%d" % sequence for sequence in range(7)]


async def test_appends_to_one_partition_are_under_way_at_a_time_but_not_without_bound() -> None:
    arrived: list[int] = []
    go = trio.Event()

    async def hold(call: Any) -> None:
        arrived.append(call.connection)
        await go.wait()

    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, hold)
        offsets: list[int] = []

        async def append(number: int) -> None:
            offsets.append(await log.append(pid=PID + number))

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(append, number)
            with trio.fail_after(PATIENCE):
                while len(arrived) < 8:  # noqa: ASYNC110 - nobody announces it
                    await trio.sleep(0.005)
            go.set()
        assert sorted(offsets) == list(range(20))
        assert len(set(arrived)) == 8, "connections are kept and used again"


async def test_one_round_trip() -> None:
    requests: list[int] = []
    async with writing() as log:
        await log.append(0)
        for key in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.API_VERSIONS):
            log.brokers.control(key, lambda call, key=key: requests.append(key))
        await log.append(1)
        assert requests == [ApiKey.PRODUCE]


async def test_what_is_cancelled_closes_its_connection_and_is_no_hindrance() -> None:
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, lambda _: Drop(), times=1)
        with trio.move_on_after(0.05):
            await log.append(0)
        assert await log.append(0) == 0
        assert log.values() == [b"0"]


class TestDeleteRecords:
    async def test_the_log_begins_there_then(self) -> None:
        async with writing(2) as log:
            for sequence in range(4):
                await log.append(sequence)
            assert await log.appender.delete_records(0, 3) == 3
            assert await log.appender.delete_records(0, 1) == 3
            assert log.values() == [b"3"]

    @pytest.mark.parametrize("fault", [lambda _: Close(), lambda _: CloseAfter()])
    async def test_cuts_and_moves_are_survived(self, fault: Any) -> None:
        async with writing(3) as log:
            await log.append(0)
            await log.append(1)
            log.brokers.control(ApiKey.DELETE_RECORDS, fault, times=2)
            log.brokers.move_leader(TOPIC, 0, log.brokers.topics[TOPIC].partitions[0].leader % 3 + 1)
            assert await log.appender.delete_records(0, 1) == 1

    async def test_what_the_log_does_not_have_is_refused(self) -> None:
        async with writing() as log:
            with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
                await log.appender.delete_records(0, 1)

    async def test_the_time_is_limited(self) -> None:
        async with writing(deadline_s=0.2) as log:
            control = log.brokers.control(ApiKey.DELETE_RECORDS, lambda _: Drop())
            with pytest.raises(OSError, match="no answer"):
                await log.appender.delete_records(0, 0)
            assert control.hits > 1


async def test_each_answer_tells_the_brokers_time() -> None:
    told: list[tuple[float, int]] = []
    async with writing() as log:
        log.appender.on_append_time = lambda sent_at, time_ms: told.append((sent_at, time_ms))
        before = trio.current_time()
        await log.append()
        ((sent_at, time_ms),) = told
        assert before <= sent_at <= trio.current_time()
        assert abs(time_ms - log.brokers.clock()) < 60_000


async def test_an_error_names_the_partition_and_what_was_answered() -> None:
    async with writing() as log:
        log.brokers.control(ApiKey.PRODUCE, _error(ErrorCode.MESSAGE_TOO_LARGE), times=1)
        with pytest.raises(AppendRefused, match="AppendRefused: partition 1, MESSAGE_TOO_LARGE"):
            await log.append(partition=1)


async def test_the_time_for_an_append_is_that_of_a_request_unless_it_is_given() -> None:
    async with writing(upstream_request_timeout_ms=300) as log:
        log.brokers.control(ApiKey.PRODUCE, _error(ErrorCode.NOT_ENOUGH_REPLICAS))
        appender = LogAppender(log.appender._cluster, log.appender._config, TOPIC)
        try:
            with trio.fail_after(PATIENCE), pytest.raises(AppendError):
                await appender.append(0, PID, 0, 0, KV)
        finally:
            appender.close()


async def test_an_attempt_that_is_under_way_when_the_time_has_passed_may_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ATTEMPTS", 0.1)  # one attempt may take longer than all
    async with writing(deadline_s=0.3) as log:
        log.brokers.control(ApiKey.PRODUCE, lambda _: Drop())
        with pytest.raises(AppendUnknown):
            await log.append()


async def test_a_deletion_whose_answer_lacks_the_partition_is_tried_again() -> None:
    async with writing() as log:
        await log.append(0)
        log.brokers.control(ApiKey.DELETE_RECORDS, lambda _: Answer(DeleteRecordsResponse()), times=1)
        with trio.fail_after(PATIENCE):
            assert await log.appender.delete_records(0, 1) == 1
        assert log.stats.upstream.errors["transaction_state_log"] == 1


async def test_a_deletion_that_never_succeeds_is_tried_with_pauses_and_for_the_time_that_is_given() -> None:
    async with writing(deadline_s=1.0, upstream_request_timeout_ms=600_000, retry_backoff_max_ms=100) as log:
        control = log.brokers.control(ApiKey.DELETE_RECORDS, lambda _: Close())
        with trio.fail_after(PATIENCE), pytest.raises(OSError, match="clos"):
            await log.appender.delete_records(0, 0)
        assert 5 < control.hits < 50
