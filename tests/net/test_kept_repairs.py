"""Idempotent producers through kproxy: errors about their numbers, and what becomes of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.dedup.kept.ids import is_given, successor
from kproxy.net import kept_repairs
from kproxy.testing.fake_broker import CloseAfter, Delay, Edit, FakeCluster, FakeServer, open_fake_cluster
from kproxy.testing.fake_broker.partition_log import PartitionLog
from tests.net.harness import FrameClient, Proxied, eventually, running, values_in
from tests.net.retrying import TIME_MS

pytestmark = pytest.mark.idle_clock

TOPIC_ID_VERSION = 13
AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS


class Producer:
    """An idempotent client that says itself what it sends."""

    def __init__(self, client: FrameClient, topic_id: bytes = b"") -> None:
        """``topic_id``: name the topic by it, as Produce from v13 on does."""
        self.client = client
        self.topic_id = topic_id
        self.id = -1
        self.epoch = 0
        self.time_ms = TIME_MS

    async def begin(self) -> int:
        """Gets a producer id; the error."""
        answer = await self.client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        self.id = answer.producer_id
        return int(answer.error_code)

    async def send(self, sequence: int, *parts: bytes | None) -> list[tuple[int, int]]:
        """Sends a batch of one record to each of the partitions, None: to that one none; error and offset of each."""
        await self.ask(sequence, *parts)
        return await self.answer()

    async def send_records(self, sequence: int, *values: bytes) -> list[tuple[int, int]]:
        """Sends a batch of these records to partition 0; error and offset."""
        await self._ask(sequence, [values])
        return await self.answer()

    async def ask(self, sequence: int, *parts: bytes | None) -> None:
        """Sends it, without waiting for the response."""
        await self._ask(sequence, [() if value is None else (value,) for value in parts])

    async def _ask(self, sequence: int, batches: Sequence[Sequence[bytes]]) -> None:
        data = [
            ProduceRequestPartitionProduceData(
                index=at,
                records=bytes(
                    build_batch(
                        [Record(nth, self.time_ms, None, value, ()) for nth, value in enumerate(values)],
                        producer_id=self.id,
                        producer_epoch=self.epoch,
                        base_sequence=sequence,
                    )
                ),
            )
            for at, values in enumerate(batches)
            if values
        ]
        topic = ProduceRequestTopicProduceData(partition_data=data)
        if self.topic_id:
            topic.topic_id = self.topic_id
        else:
            topic.name = "t"
        await self.client.send(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic]), self.version)

    @property
    def version(self) -> int:
        return TOPIC_ID_VERSION if self.topic_id else 9

    async def answer(self) -> list[tuple[int, int]]:
        """The response to the oldest request."""
        response: Any = await self.client.receive()
        return [(row.error_code, row.base_offset) for topic in response.responses for row in topic.partition_responses]


@asynccontextmanager
async def cluster(timestamps: str = "CreateTime") -> AsyncIterator[FakeServer]:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t", partitions=2, config={"message.timestamp.type": timestamps})
        yield fake


@asynccontextmanager
async def started(fake: FakeServer, **options: Any) -> AsyncIterator[Proxied]:
    given = {"crash_recovery_enable": True, **options}
    async with running(fake.bootstrap, instance_id="one", **given) as proxy, AsyncExitStack() as stack:
        proxy.fake, proxy.transactions = fake, stack
        await eventually(lambda: proxy.stats.upstream.ready)
        yield proxy


@asynccontextmanager
async def producing(*, by_id: bool = False, **options: Any) -> AsyncIterator[tuple[Proxied, Producer]]:
    """A producer that has written three records to each partition."""
    async with cluster() as fake, started(fake, **options) as proxy:
        producer = await connected(proxy, by_id=by_id)
        for at, value in enumerate((b"a", b"b", b"c")):
            assert await producer.send(at, value, value) == [(0, at), (0, at)]
        yield proxy, producer


async def connected(proxy: Proxied, *, by_id: bool = False, client_id: str = "test") -> Producer:
    """A producer with an id; its connection is closed at the end."""
    topic_id = proxy.brokers.topics["t"].topic_id if by_id else b""
    producer = Producer(await reconnected(proxy, client_id), topic_id)
    while await producer.begin():
        pass
    return producer


async def reconnected(proxy: Proxied, client_id: str = "test") -> FrameClient:
    client = await proxy.client(1, client_id=client_id)
    await proxy.transactions.enter_async_context(client)
    return client


def log_of(proxy: Proxied, partition: int = 0) -> PartitionLog:
    return proxy.brokers.topics["t"].partitions[partition].log


def written(brokers: FakeCluster) -> list[bytes]:
    """The values in partition 0, without markers."""
    return [value for value in values_in(brokers, "t") if value and len(value) == 1]


async def test_the_broker_knows_the_last_batch_only_and_a_retry_of_an_earlier_one_is_found() -> None:
    """As after the restart of a broker: a producer with several requests in flight would double records."""
    async with producing() as (proxy, producer):
        log_of(proxy).producers.reload(0)
        assert await producer.send(1, b"b", b"b") == [(0, 1), (0, 1)]
        assert proxy.stats.kept.repairs == {"written": 2}
        assert await producer.send(3, b"d", b"d") == [(0, 3), (0, 3)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("by_id", [False, True])
async def test_an_epoch_that_somebody_raised_does_not_reach_the_client(by_id: bool) -> None:
    async with producing(by_id=by_id) as (proxy, producer):
        assert is_given(producer.id)
        log_of(proxy).producers.marker(producer.id, 7, 0, TIME_MS)
        assert await producer.send(3, b"d", b"d") == [(AGAIN, -1), (0, 3)]
        for at in 3, 4:
            assert await producer.send(at, b"d", b"d") == [(0, at), (0, at)]
        assert proxy.stats.kept.repairs == {"outdated": 1, "written": 1, "sent_alone": 1}
        ids = {one for one, _ in log_of(proxy).producers.items()}
        assert ids == {producer.id, successor(producer.id, 1)}
        producer.epoch += 1
        assert await producer.send(0, b"e", b"e") == [(0, 5), (0, 5)]
        assert proxy.stats.kept.repairs == {"outdated": 1, "written": 1, "sent_alone": 3}


async def test_requests_in_flight_are_repaired_in_their_order() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).producers.marker(producer.id, 7, 0, TIME_MS)
        for at in range(3, 8):
            await producer.ask(at, b"%d" % at, b"")
        assert [(await producer.answer())[0] for _ in range(5)] == [(AGAIN, -1)] * 5
        for at in range(3, 8):
            await producer.ask(at, b"%d" % at, b"")
        assert [(await producer.answer())[0] for _ in range(5)] == [(0, at) for at in range(3, 8)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"3", b"4", b"5", b"6", b"7"]


async def test_the_client_learns_of_lost_records_and_only_of_that_partition() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).truncate(1)
        assert await producer.send(3, b"d", b"d") == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 3)]
        assert proxy.stats.kept.lost_records == 2
        assert proxy.stats.kept.repairs == {"lost": 1}
        producer.epoch += 1
        assert await producer.send(0, b"d") == [(0, 1)]


async def test_a_log_that_was_cut_below_all_that_a_producer_wrote_is_noticed_when_it_writes_again() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).truncate(0)
        assert await producer.send(3, b"d", b"d") == [(0, 0), (0, 3)]
        assert proxy.stats.kept.lost_records == 3


async def test_what_was_deleted_is_not_lost() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).delete_before(3)
        log_of(proxy).forget_producers(0)
        assert await producer.send(3, b"d", b"d") == [(0, 3), (0, 3)]
        assert proxy.stats.kept.lost_records == 0


async def test_what_is_repeated_after_the_broker_has_forgotten_the_producer_is_not_written_again() -> None:
    """A broker takes any batch of a producer that it does not know (``producer.id.expiration.ms``)."""
    async with producing() as (proxy, producer):
        for at in 1, 2:
            proxy.brokers.expire_producers("t", 0)
            assert await producer.send(at, b"x", b"x") == [(0, at), (0, at)]
        assert proxy.stats.kept.repairs == {"written": 4}
        assert await producer.send(3, b"d", b"d") == [(0, 3), (0, 3)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]


async def test_what_follows_a_repeated_batch_is_sent_after_it() -> None:
    async with producing() as (proxy, producer):
        proxy.brokers.expire_producers("t", 0)
        for at in range(2, 6):
            await producer.ask(at, b"%d" % at, b"")
        assert [(await producer.answer())[0] for _ in range(4)] == [(0, at) for at in range(2, 6)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"3", b"4", b"5"]


async def test_what_is_repeated_may_be_what_the_log_has_lost() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).truncate(2)
        assert await producer.send(2, b"c", b"c") == [(0, 2), (0, 2)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c"]


async def rewritten(proxy: Proxied, producer: Producer) -> None:
    """The log is cut after "a", and "b", which the producer repeats, goes to the place that "c" had."""
    log_of(proxy).truncate(1)
    foreign = build_batch([Record(0, TIME_MS, None, b"x", ())], producer_id=4711, producer_epoch=0, base_sequence=0)
    assert log_of(proxy).append(memoryview(foreign), 0, TIME_MS).error == 0
    assert await producer.send(1, b"b") == [(0, 2)]


async def test_what_is_repeated_is_not_taken_for_another_batch_of_its_producer_that_has_its_place() -> None:
    async with producing() as (proxy, producer):
        await rewritten(proxy, producer)
        assert await producer.send(2, b"c") == [(0, 3)]
        assert written(proxy.brokers) == [b"a", b"x", b"b", b"c"]


async def test_lost_records_are_noticed_though_another_batch_of_their_producer_has_their_place() -> None:
    async with producing() as (proxy, producer):
        await rewritten(proxy, producer)
        assert await producer.send(3, b"d") == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert proxy.stats.kept.lost_records == 1


async def test_of_what_is_repeated_of_very_many_partitions_nothing_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So many are looked into; their client repeats the others, once more."""
    monkeypatch.setattr(kept_repairs, "MOST_AT_ONCE", 1)
    async with producing() as (proxy, producer):
        for partition in 0, 1:
            proxy.brokers.expire_producers("t", partition)
        assert await producer.send(2, b"c", b"c") == [(0, 2), (AGAIN, -1)]
        assert await producer.send(2, None, b"c") == [(0, 2)]
        assert await producer.send(3, b"d", b"d") == [(0, 3), (0, 3)]
        for partition in 0, 1:
            assert values_in(proxy.brokers, "t", partition) == [b"a", b"b", b"c", b"d"]


async def test_a_gap_that_the_client_made_is_accepted_when_it_insists_and_what_it_left_out_is_refused() -> None:
    async with producing() as (proxy, producer):
        assert await producer.send(5, b"f", b"f") == [(AGAIN, -1), (AGAIN, -1)]
        assert await producer.send(5, b"f", b"f") == [(0, 4), (0, 4)]  # after a marker
        assert await producer.send(6, b"g", b"g") == [(0, 5), (0, 5)]
        late = await producer.send(3, b"d", b"d")
        assert late == [(ErrorCode.INVALID_RECORD, -1)] * 2
        assert written(proxy.brokers) == [b"a", b"b", b"c", b"f", b"g"]
        assert proxy.stats.kept.left_out == 2


async def test_a_predecessor_that_comes_after_all_is_written_first() -> None:
    async with producing() as (proxy, producer):
        assert (await producer.send(4, b"e", b"e"))[0][0] == AGAIN
        assert await producer.send(3, b"d", b"d") == [(0, 3), (0, 3)]
        assert await producer.send(4, b"e", b"e") == [(0, 4), (0, 4)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d", b"e"]


async def test_of_many_partitions_so_many_are_looked_into_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_repairs, "MOST_AT_ONCE", 1)
    async with producing() as (proxy, producer):
        for partition in 0, 1:
            log_of(proxy, partition).producers.marker(producer.id, 7, 0, TIME_MS)
        for _ in range(2):
            told = await producer.send(3, b"d", b"d")
        assert told == [(0, 3), (AGAIN, -1)]
        for _ in range(2):
            told = await producer.send(3, b"d", b"d")
        assert told == [(AGAIN, -1), (0, 3)]  # what it has no success for comes first
        assert await producer.send(3, b"d") == [(0, 3)]
        assert await producer.send(4, b"e", b"e") == [(0, 4), (0, 4)]
        assert values_in(proxy.brokers, "t", 1) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(("by_id", "times"), [(False, 1), (True, 2)])
async def test_leaders_are_learnt_once_for_all_batches_of_a_request(by_id: bool, times: int) -> None:
    """Else a client with gaps on thousands of partitions has kproxy read their metadata as often."""
    async with producing(by_id=by_id) as (proxy, producer):
        asked: list[Any] = []
        proxy.brokers.control(ApiKey.METADATA, lambda call: asked.extend(call.request.topics))
        for partition in 0, 1:
            log_of(proxy, partition).producers.marker(producer.id, 7, 0, TIME_MS)
        assert await producer.send(3, b"d", b"d") == [(AGAIN, -1)] * 2
        assert len(asked) == times  # the name of a topic is asked for apart


async def test_a_batch_whose_leader_moves_during_its_repair_is_sent_to_the_new_one_when_it_is_repeated() -> None:
    async with producing() as (proxy, producer):
        log_of(proxy).producers.marker(producer.id, 7, 0, TIME_MS)
        moved, calls = ErrorCode.NOT_LEADER_OR_FOLLOWER, list[Any]()

        def refuse(call: Any) -> Edit | None:
            calls.append(call)
            return Edit(_refused) if len(calls) == 2 else None

        def _refused(response: Any) -> None:
            response.responses[0].partition_responses[0].error_code = moved

        assert await producer.send(3, b"d") == [(AGAIN, -1)]
        proxy.brokers.control(ApiKey.PRODUCE, refuse)
        asked: list[Any] = []
        proxy.brokers.control(ApiKey.METADATA, lambda call: asked.extend(call.request.topics))
        assert await producer.send(3, b"d") == [(moved, 3)]
        asked.clear()
        assert await producer.send(3, b"d") == [(0, 3)]
        assert asked
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]


async def test_another_process_continues_under_the_id_that_the_former_one_used() -> None:
    async with cluster() as fake:
        async with started(fake) as proxy:
            producer = await connected(proxy)
            assert await producer.send(0, b"a") == [(0, 0)]
            for _ in range(2):
                told = await producer.send(5, b"f")
            assert told == [(0, 2)]
        async with started(fake) as proxy:
            producer.client = await reconnected(proxy)
            assert await producer.send(5, b"f") == [(0, 2)]
            assert await producer.send(6, b"g") == [(0, 3)]
            assert written(fake.cluster) == [b"a", b"f", b"g"]


async def test_what_is_repeated_under_a_raised_epoch_is_not_written_again() -> None:
    async with producing() as (proxy, producer):
        producer.epoch += 1
        assert await producer.send(0, b"b", b"c") == [(0, 1), (0, 2)]
        assert await producer.send(1, b"c", b"d") == [(0, 2), (0, 3)]
        assert await producer.send(2, b"d", b"e") == [(0, 3), (0, 4)]
        assert proxy.stats.kept.repairs == {"found_older": 3, "sent_alone": 3}
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]
        assert values_in(proxy.brokers, "t", 1) == [b"a", b"b", b"c", b"d", b"e"]


async def test_nor_is_it_if_the_response_to_that_is_lost_and_it_is_raised_again() -> None:
    async with producing() as (proxy, producer):
        for _ in range(3):
            producer.epoch += 1
            assert await producer.send(0, b"b") == [(0, 1)]
        assert await producer.send(0, b"b") == [(0, 1)]
        assert await producer.send(1, b"c") == [(0, 2)]
        assert await producer.send(2, b"d") == [(0, 3)]
        assert await producer.send(3, b"e") == [(0, 4)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d", b"e"]
        assert proxy.stats.kept.lost_records == 0


@pytest.mark.parametrize("values", [(b"c", b"e"), (b"c",)])
async def test_what_seems_to_be_in_the_log_waits_for_a_batch_before_it_that_is_not_settled(
    values: tuple[bytes, ...],
) -> None:
    """Else what follows is written under another id, and the batch before is refused for ever."""
    async with producing() as (proxy, producer):
        producer.epoch += 1
        assert await producer.send(0, b"b") == [(0, 1)]
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=30), times=1)
        assert (await producer.send(1, b"d"))[0][0] == ErrorCode.REQUEST_TIMED_OUT
        assert await producer.send_records(2, *values) == [(AGAIN, -1)]
        assert [error for error, _ in await producer.send(1, b"d")] == [0]
        assert [error for error, _ in await producer.send_records(2, *values)] == [0]
        assert [error for error, _ in await producer.send(2 + len(values), b"f")] == [0]
        await trio.sleep(60.0)
        assert written(proxy.brokers) == [b"a", b"b", b"c", b"d", *values, b"f"]


async def test_a_batch_of_which_a_part_is_in_the_log_is_written_without_it_once() -> None:
    async with producing() as (proxy, producer):
        producer.epoch += 1
        assert await producer.send_records(0, b"b", b"c", b"d", b"e") == [(0, -1)]
        assert await producer.send_records(0, b"b", b"c", b"d", b"e") == [(0, -1)]
        assert await producer.send(4, b"f") == [(0, 5)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_such_a_batch_is_known_where_the_log_has_no_timestamps_of_the_client() -> None:
    async with cluster("LogAppendTime") as fake, started(fake) as proxy:
        producer = await connected(proxy)
        assert await producer.send(0, b"a") == [(0, 0)]
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        await producer.ask(1, b"b")
        await trio.sleep(1.0)
        producer.client, producer.epoch = await reconnected(proxy), 1
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: CloseAfter(), times=1)
        assert await producer.send_records(0, b"b", b"c") == [(AGAIN, -1)]
        assert await producer.send_records(0, b"b", b"c") == [(0, -1)]
        assert written(fake.cluster) == [b"a", b"b", b"c"]


async def test_what_is_repeated_is_known_where_the_log_shows_no_timestamps_of_the_client() -> None:
    """Its success was lost, kproxy has ended since, and the client raises its epoch or does not."""
    async with cluster("LogAppendTime") as fake:
        async with started(fake) as proxy:
            producer = await connected(proxy)
            for at, value in enumerate((b"a", b"b", b"c")):
                assert await producer.send(at, value) == [(0, at)]
        async with started(fake) as proxy:
            producer.client = await reconnected(proxy)
            log_of(proxy).producers.reload(0)
            assert await producer.send(1, b"b") == [(0, 1)]
            assert await producer.send(2, b"c") == [(0, 2)]
            producer.epoch += 1
            assert await producer.send(0, b"c") == [(0, 2)]
        async with started(fake) as proxy:
            producer.client = await reconnected(proxy)
            producer.epoch += 1
            assert await producer.send(0, b"b") == [(0, 1)]
            assert await producer.send(1, b"c") == [(0, 2)]
            producer.time_ms += 1
            assert [error for error, _ in await producer.send(2, b"c")] == [0]
            assert written(fake.cluster) == [b"a", b"b", b"c", b"c"]


async def test_a_batch_that_its_client_has_regrouped_is_written_without_what_is_there() -> None:
    async with producing() as (proxy, producer):
        assert await producer.send_records(1, b"b", b"c", b"d", b"e") == [(0, -1)]
        assert await producer.send_records(1, b"b", b"c", b"d", b"e") == [(0, -1)]
        assert await producer.send_records(4, b"e", b"f") == [(0, -1)]
        assert await producer.send(6, b"g") == [(0, 6)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


async def test_another_process_finds_what_was_written_under_earlier_epochs() -> None:
    async with cluster() as fake:
        async with started(fake) as proxy:
            producer = await connected(proxy)
            for at, value in enumerate((b"a", b"b", b"c")):
                assert await producer.send(at, value) == [(0, at)]
            producer.epoch += 1
            assert await producer.send(0, b"b") == [(0, 1)]
        async with started(fake) as proxy:
            producer.client = await reconnected(proxy)
            assert await producer.send(0, b"b") == [(0, 1)]
            assert await producer.send(1, b"c") == [(0, 2)]
        async with started(fake) as proxy:
            producer.client = await reconnected(proxy)
            told = [(await producer.send(2, b"d"))[0][0] for _ in range(2)]
            assert told == [AGAIN, 0]  # nobody knows that its predecessors were found
            assert written(fake.cluster) == [b"a", b"b", b"c", b"d"]


async def test_a_copy_that_is_in_flight_under_an_earlier_epoch_is_fenced_off() -> None:
    async with producing() as (proxy, producer):
        proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=30), times=1)
        await producer.ask(3, b"d")
        await trio.sleep(1.0)
        producer.client, producer.epoch = await reconnected(proxy), 1
        [(error, offset)] = await producer.send(0, b"d")
        assert (error, written(proxy.brokers).count(b"d")) == (0, 1)
        await trio.sleep(60.0)
        assert written(proxy.brokers) == [b"a", b"b", b"c", b"d"]
        assert offset == 4  # after the marker


async def test_an_equal_record_of_another_time_is_written_under_a_raised_epoch() -> None:
    async with producing() as (proxy, producer):
        producer.epoch += 1
        producer.time_ms += 1
        assert await producer.send(0, b"c") == [(0, 3)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"c"]


async def test_a_batch_of_an_epoch_that_its_client_has_left_is_refused() -> None:
    async with producing() as (proxy, producer):
        other = Producer(await reconnected(proxy))
        other.id, other.epoch = producer.id, 1
        assert await other.send(0, b"d") == [(0, 3)]
        assert await producer.send(3, b"x") == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"d"]


async def test_an_id_of_another_client_is_refused() -> None:
    async with producing() as (proxy, producer):
        other = await connected(proxy, client_id="other")
        other.id = producer.id
        refused = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        with structlog.testing.capture_logs() as lines:
            for _ in range(2):
                assert await other.send(3, b"x", b"x") == [refused, refused]
        assert proxy.stats.refused.refusals == {"foreign_producer_id": 2}
        told = [(line["client_id"], line["reason"]) for line in lines if line["log_level"] == "warning"]
        assert told == [("other", "foreign_producer_id")], "once for a connection"
        same = await connected(proxy)
        same.id = producer.id
        assert await same.send(3, b"d", b"d") == [(0, 3), (0, 3)]


async def test_clients_that_are_not_listed_are_relayed() -> None:
    async with producing(idempotent_clients=("kept-*",)) as (proxy, producer):
        assert not is_given(producer.id)
        log_of(proxy).producers.marker(producer.id, 7, 0, TIME_MS)
        assert await producer.send(3, b"d", b"d") == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1), (0, 3)]
        assert is_given((await connected(proxy, client_id="kept-1")).id)


async def test_a_broker_may_assign_large_ids_to_clients_that_are_not_listed() -> None:
    """Such an id may look like one that kproxy has given to another client."""
    async with cluster() as fake, started(fake, idempotent_clients=("kept-*",)) as proxy:

        def enlarge(response: Any) -> None:
            response.producer_id = 1 << 50

        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: Edit(enlarge))
        producer = await connected(proxy)
        assert producer.id == 1 << 50
        assert await producer.send(0, b"a") == [(0, 0)]
        assert proxy.stats.refused.refusals == {}


async def test_without_crash_recovery_all_are_relayed() -> None:
    async with cluster() as fake, started(fake, crash_recovery_enable=False) as proxy:
        producer = await connected(proxy)
        assert not is_given(producer.id)
        assert await producer.send(0, b"a") == [(0, 0)]
