"""Lanes of the past: fenced on every partition before any is read, read in few requests, bounded in bytes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from trio.testing import MockClock

from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.batch import Record, build_batch, iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net.broker_log import Batch, BrokerLog, LogError
from kproxy.net.recovery import Recovery
from kproxy.testing.fake_broker import Call, Close
from tests.net.harness import Proxied, proxied


@dataclass(frozen=True)
class Past:
    producer_id: int
    first_epoch: int = 0
    last_epoch: int = 31
    returned: bool = False
    shared: bool = False


HOUR_MS = 3_600_000
PATIENT_MS = 60_000
"""Longer than anything takes on a busy machine."""
ONE, TWO = Past(KPROXY_BIT | 1), Past(KPROXY_BIT | 2)


class Found(dict[TopicPartition, list[bytes | None]]):
    """What was taken: the values of the records."""

    def take(self, place: TopicPartition, batches: list[Batch]) -> None:
        assert place not in self
        self[place] = [
            record.value for batch in batches for record in iter_records(batch.data, max_decompressed_bytes=1 << 20)
        ]


@asynccontextmanager
async def recovery(brokers: int = 1, partitions: int = 1, **options: Any) -> AsyncIterator[tuple[Proxied, Recovery]]:
    async with proxied(brokers, **options) as proxy:
        proxy.brokers.create_topic("t", partitions)
        broker_log = BrokerLog(proxy.cluster, proxy.config, proxy.stats.retries)
        try:
            yield proxy, Recovery(broker_log, proxy.config, proxy.stats.retries)
        finally:
            broker_log.close()


def write(
    proxy: Proxied,
    lane: Past,
    value: bytes,
    *,
    epoch: int | None = None,
    sequence: int = 0,
    index: int = 0,
    age_ms: int = 0,
) -> int:
    """The broker's error code for a batch with one record."""
    now = proxy.brokers.clock()
    data = build_batch(
        [Record(0, now - age_ms, None, value)],
        producer_id=lane.producer_id,
        producer_epoch=lane.first_epoch if epoch is None else epoch,
        base_sequence=sequence,
    )
    return proxy.brokers.topics["t"].partitions[index].log.append(memoryview(data), 0, now).error


def fill(proxy: Proxied, index: int, count: int) -> None:
    """Batches of somebody else."""
    for sequence in range(count):
        assert write(proxy, Past(5), b"other's", sequence=sequence, index=index) == 0


def move_once(move: Callable[[Call], None]) -> Callable[[Call], None]:
    """Calls ``move`` for the first request only."""
    calls: list[Call] = []

    def control(call: Call) -> None:
        calls.append(call)
        if len(calls) == 1:
            move(call)

    return control


def run_out_of_time(proxy: Proxied, clock: MockClock) -> None:
    """Let the delivery timeout pass when leaders are looked up again and no other question was asked in between."""
    asked: list[ApiKey] = []

    def note(call: Call, api: ApiKey) -> None:
        if api == ApiKey.METADATA:
            if [topic.name for topic in call.request.topics or ()] != ["t"]:
                return
            if asked[-1:] == [api]:
                clock.jump(PATIENT_MS / 1000)
                asked.clear()
                return
        asked.append(api)

    for api in (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.WRITE_TXN_MARKERS):
        proxy.brokers.control(api, lambda call, api=api: note(call, api))


async def test_what_the_lanes_wrote_is_found_and_nothing_of_others() -> None:
    async with recovery(2, 3) as (proxy, recover):
        write(proxy, ONE, b"a")
        write(proxy, TWO, b"b")
        write(proxy, ONE, b"c", sequence=1)
        write(proxy, Past(KPROXY_BIT | 3), b"other's")
        write(proxy, TWO, b"d", index=2)
        found = Found()
        await recover.recover([ONE, TWO], [("t", 0), ("t", 1), ("t", 2)], found.take)
        assert found == {("t", 0): [b"a", b"b", b"c"], ("t", 1): [], ("t", 2): [b"d"]}
        assert proxy.stats.retries.recoveries == 3
        assert proxy.stats.retries.recovery_seconds > 0


async def test_only_the_epochs_of_the_lane_count() -> None:
    lane = Past(ONE.producer_id, 32, 63)
    async with recovery() as (proxy, recover):
        for epoch in (31, 32, 63):
            assert write(proxy, lane, b"%d" % epoch, epoch=epoch) == 0
        found = Found()
        await recover.recover([lane], [("t", 0)], found.take)
        assert found == {("t", 0): [b"32", b"63"]}


async def test_all_is_fenced_before_anything_is_read() -> None:
    order: list[ApiKey] = []
    async with recovery(2, 4) as (proxy, recover):
        for api in (ApiKey.WRITE_TXN_MARKERS, ApiKey.FETCH):
            proxy.brokers.control(api, lambda _, api=api: order.append(api))
        write(proxy, ONE, b"a")
        await recover.recover([ONE, TWO], [("t", index) for index in range(4)], Found().take)
        assert order[:2] == [ApiKey.WRITE_TXN_MARKERS] * 2
        assert set(order[2:]) == {ApiKey.FETCH}
        for index in range(4):
            for lane in (ONE, TWO):
                assert write(proxy, lane, b"late", sequence=1, index=index) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert write(proxy, lane, b"late", epoch=31, index=index) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert write(proxy, lane, b"new", epoch=33, index=index) == 0


async def test_of_two_lanes_with_one_producer_id_the_higher_fence_counts() -> None:
    async with recovery() as (proxy, recover):
        write(proxy, ONE, b"a")
        write(proxy, ONE, b"b", epoch=40)
        found = Found()
        await recover.recover([Past(ONE.producer_id, 32, 63), ONE], [("t", 0)], found.take)
        assert found == {("t", 0): [b"a", b"b"]}
        assert write(proxy, ONE, b"late", epoch=63) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_many_partitions_share_requests() -> None:
    asked: list[ApiKey] = []
    async with recovery(3, 120) as (proxy, recover):
        for index in range(0, 120, 40):
            write(proxy, ONE, b"%d" % index, index=index)
        for api in (ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS):
            proxy.brokers.control(api, lambda _, api=api: asked.append(api))
        found = Found()
        await recover.recover([ONE, TWO], [("t", index) for index in range(120)], found.take)
        assert len(found) == 120
        assert {place[1]: values for place, values in found.items() if values} == {
            index: [b"%d" % index] for index in (0, 40, 80)
        }
        assert asked.count(ApiKey.WRITE_TXN_MARKERS) == 3
        assert asked.count(ApiKey.DESCRIBE_PRODUCERS) <= 3 * 4


async def test_many_lanes_are_fenced_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr("kproxy.net.recovery._MARKERS_AT_ONCE", 10)
    async with recovery(1, 2) as (proxy, recover):
        proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda call: sizes.append(len(call.request.markers)))
        lanes = [Past(KPROXY_BIT | number) for number in range(12)]
        await recover.recover(lanes, [("t", 0), ("t", 1)], Found().take)
        assert sizes == [5, 5, 2]


async def test_large_tails_are_read_a_few_at_a_time() -> None:
    held: list[int] = []
    async with recovery(1, 40, recovery_max_bytes=40_000) as (proxy, recover):
        for index in range(40):
            write(proxy, ONE, bytes(10_000), index=index)
        proxy.brokers.control(
            ApiKey.DESCRIBE_PRODUCERS,
            lambda call: held.append(sum(len(topic.partition_indexes) for topic in call.request.topics)),
        )
        found = Found()
        await recover.recover([ONE], [("t", index) for index in range(40)], found.take)
        assert len(found) == 40
        assert held.pop(0) == 40, "before the fence"
        assert sum(held) == 40
        assert max(held) <= 4


async def test_nothing_to_do_is_no_request() -> None:
    async with recovery() as (proxy, recover):
        found = Found()
        await recover.recover([], [("t", 0)], found.take)
        await recover.recover([ONE], [], found.take)
        assert (found, proxy.stats.retries.recoveries, proxy.stats.retries.fences) == ({}, 0, {})


@pytest.mark.idle_clock
async def test_what_is_unavailable_is_an_error_and_nothing_is_made_up() -> None:
    async with recovery(delivery_timeout_ms=50) as (proxy, recover):
        proxy.brokers.control(ApiKey.DESCRIBE_PRODUCERS, lambda _: Close())
        found = Found()
        with pytest.raises(OSError):
            await recover.recover([ONE], [("t", 0)], found.take)
        assert (found, proxy.stats.retries.recoveries) == ({}, 0)
        proxy.stats.upstream.errors.clear()


@pytest.mark.idle_clock
async def test_a_partition_that_does_not_exist_is_named_and_the_others_are_read() -> None:
    async with recovery() as (proxy, recover):
        write(proxy, ONE, b"a")
        found, missing = Found(), dict[TopicPartition, int]()
        await recover.recover([ONE], [("t", 0), ("t", 1)], found.take, missing)
        assert found == {("t", 0): [b"a"]}
        assert missing == {("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        with pytest.raises(LogError):
            await recover.recover([ONE], [("t", 1)], found.take)


async def test_a_batch_that_lands_just_before_the_fence_is_found_where_its_lane_was_unknown() -> None:
    async with recovery(1, 3) as (proxy, recover):
        write(proxy, ONE, b"timely", index=0)
        fill(proxy, 1, 1000)

        def late(_: Call) -> None:
            assert write(proxy, ONE, b"late", index=1) == 0

        control = proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, late, times=1)
        found = Found()
        await recover.recover([ONE], [("t", index) for index in range(3)], found.take)
        proxy.brokers.controls.remove(control)
        assert found == {("t", 0): [b"timely"], ("t", 1): [b"late"], ("t", 2): []}
        assert proxy.stats.retries.readback_bytes < 2000, "nothing of what lies before"


async def test_nothing_is_believed_of_lanes_whose_records_were_old_when_they_were_sent() -> None:
    async with recovery(1, 2) as (proxy, recover):
        for index in range(2):
            write(proxy, ONE, b"old", index=index, age_ms=20 * HOUR_MS)
        log = proxy.brokers.topics["t"].partitions[1].log
        log.producers.expire(proxy.brokers.clock() + 5 * HOUR_MS)
        assert not log.producers.items(), "the broker has forgotten the producer"
        fill(proxy, 1, 100)
        found = Found()
        await recover.recover([ONE], [("t", 0), ("t", 1)], found.take)
        assert found == {("t", 0): [b"old"], ("t", 1): [b"old"]}


async def test_nor_where_nothing_is_known_of_the_lanes_at_all() -> None:
    async with recovery() as (proxy, recover):
        write(proxy, ONE, b"a")
        proxy.brokers.topics["t"].partitions[0].log.producers.expire(proxy.brokers.clock() + 30 * HOUR_MS)
        found = Found()
        await recover.recover([ONE], [("t", 0)], found.take)
        assert found == {("t", 0): [b"a"]}


async def test_what_a_returned_lane_wrote_is_found_though_its_broker_forgets_it_meanwhile() -> None:
    lane = Past(ONE.producer_id, returned=True)
    async with recovery() as (proxy, recover):
        write(proxy, lane, b"old", age_ms=48 * HOUR_MS)
        producers = proxy.brokers.topics["t"].partitions[0].log.producers
        surveys: list[Call] = []

        def forget_after_the_first(call: Call) -> None:
            surveys.append(call)
            if len(surveys) > 1:
                producers.expire(proxy.brokers.clock() + HOUR_MS)

        proxy.brokers.control(ApiKey.DESCRIBE_PRODUCERS, forget_after_the_first)
        found = Found()
        await recover.recover([lane], [("t", 0)], found.take)
        assert not producers.items(), "the broker has forgotten the producer"
        assert found == {("t", 0): [b"old"]}
        assert not proxy.stats.retries.fences


async def test_what_was_fenced_before_is_searched_for_all_the_same() -> None:
    """By a kproxy that was killed before it was done."""
    async with recovery(1, 2) as (proxy, recover):
        write(proxy, ONE, b"a", index=0)
        write(proxy, ONE, b"b", index=1)
        fill(proxy, 1, 100)
        log = proxy.brokers.topics["t"].partitions[1].log
        log.append_marker(ONE.producer_id, 32, False, 0, 0, proxy.brokers.clock())
        found = Found()
        await recover.recover([ONE], [("t", 0), ("t", 1)], found.take)
        assert found == {("t", 0): [b"a"], ("t", 1): [b"b"]}


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_PRODUCERS, ApiKey.WRITE_TXN_MARKERS, ApiKey.FETCH])
async def test_leaders_may_move_at_any_time(api: ApiKey) -> None:
    async with recovery(2, 8) as (proxy, recover):
        for index in range(8):
            write(proxy, ONE, b"%d" % index, index=index)

        def move(_: Call) -> None:
            for index in range(4):
                proxy.brokers.move_leader("t", index, 3 - proxy.brokers.topics["t"].partitions[index].leader)

        proxy.brokers.control(api, move_once(move))
        found = Found()
        await recover.recover([ONE], [("t", index) for index in range(8)], found.take)
        assert found == {("t", index): [b"%d" % index] for index in range(8)}


async def test_a_partition_that_fails_leaves_the_others_alone(mock_clock: MockClock) -> None:
    """Its question runs out of time after the other partitions were answered, however slow this machine is."""
    mock_clock.rate = 1
    async with recovery(2, 4, delivery_timeout_ms=PATIENT_MS) as (proxy, recover):
        for index in range(4):
            write(proxy, ONE, b"%d" % index, index=index)
        proxy.brokers.topics["t"].partitions[2].leader = -1
        run_out_of_time(proxy, mock_clock)
        found = Found()
        with pytest.raises(OSError, match="t-2"):
            await recover.recover([ONE], [("t", index) for index in range(4)], found.take)
        assert found == {("t", index): [b"%d" % index] for index in (0, 1, 3)}


def _names_topics(call: Call) -> bool:
    """Whether a request is not the question which cluster a broker belongs to."""
    return not isinstance(call.request, MetadataRequest) or bool(call.request.topics)


async def test_a_thousand_partitions_take_a_few_requests() -> None:
    asked: list[ApiKey] = []
    async with recovery(3, 1000) as (proxy, recover):
        for index in range(1000):
            write(proxy, ONE, b"%d" % index, index=index)
            if index % 2:
                write(proxy, TWO, b"two", index=index)
        for api in (
            ApiKey.METADATA,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.LIST_OFFSETS,
            ApiKey.FETCH,
        ):
            proxy.brokers.control(api, lambda call, api=api: asked.append(api) if _names_topics(call) else None)
        found = Found()
        await recover.recover([ONE, TWO], [("t", index) for index in range(1000)], found.take)
        assert found == {("t", n): [b"%d" % n, b"two"] if n % 2 else [b"%d" % n] for n in range(1000)}
        assert asked.count(ApiKey.METADATA) == 1
        assert asked.count(ApiKey.WRITE_TXN_MARKERS) == 3
        assert len(asked) <= 3 * 40
