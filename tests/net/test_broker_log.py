"""Fences and reads of brokers' logs."""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.write_txn_markers import WriteTxnMarkersResponse
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log import Batch, BrokerLog, Failures
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.fake_broker import Call, CloseAfter, Delay, Edit
from kproxy.testing.fake_broker.partition import Partition
from kproxy.testing.kafka import RealKafka
from tests.net.harness import Proxied, eventually, proxied, running

PID, OTHER = 1 << 62 | 7, 1 << 62 | 8
#: Ahead of the brokers' clock, so that no producer is forgotten.
START_MS = 4_000_000_000_000


@asynccontextmanager
async def logs(
    brokers: int = 1, partitions: int = 1, *, replication: int = 1, **options: int
) -> AsyncIterator[tuple[Proxied, BrokerLog]]:
    async with proxied(brokers, **options) as proxy:
        proxy.brokers.create_topic("t", partitions, replication)
        broker_log = BrokerLog(proxy.cluster, proxy.config, proxy.stats.retries)
        try:
            yield proxy, broker_log
        finally:
            broker_log.close()


def part(proxy: Proxied, index: int = 0) -> Partition:
    return proxy.brokers.topics["t"].partitions[index]


def write(
    proxy: Proxied, sequence: int, *, pid: int = PID, epoch: int = 0, records: int = 1, at_ms: int = 0, index: int = 0
) -> int:
    """The broker's error code for a batch."""
    rows = [Record(n, START_MS + at_ms, None, b"%d" % (sequence + n), ()) for n in range(records)]
    data = build_batch(rows, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    log = part(proxy, index).log
    return log.append(memoryview(data), 0, START_MS).error


async def read(log: BrokerLog, first: int, end: int, topic: str = "t") -> list[Batch]:
    """The batches that hold the offsets in [first, end)."""
    found: list[Batch] = []
    failed: Failures = {}
    await log.read_at({(topic, 0): range(first, end)}, lambda _, batch: found.append(batch), failed)
    for error in failed.values():
        raise error
    return found


def sequences(batches: list[Batch]) -> list[int]:
    return [batch.header.base_sequence for batch in batches]


class TestLosses:
    async def test_a_log_that_ends_before_or_has_another_batch_there_has_lost_what_was_written(self) -> None:
        async with logs() as (proxy, log):
            for sequence in (0, 2, 4):
                write(proxy, sequence, records=2)
            assert not await log.is_lost(("t", 0), 5, lambda header: header.base_sequence == 4)
            assert await log.is_lost(("t", 0), 6, lambda _: True)
            assert await log.is_lost(("t", 0), 1, lambda header: header.base_sequence == 2)

    async def test_what_followers_do_not_have_yet_is_not_lost(self) -> None:
        """A new leader may know a smaller high watermark than the one that acknowledged the records."""
        async with logs(2, replication=2, upstream_request_timeout_ms=200) as (proxy, log):
            follower = 3 - part(proxy).leader
            proxy.brokers.pause_replication(follower)
            write(proxy, 0)
            with pytest.raises(OSError, match="can be read up to 0"):
                await log.is_lost(("t", 0), 0, lambda _: True)
            proxy.brokers.resume_replication(follower)
            assert not await log.is_lost(("t", 0), 0, lambda _: True)


class TestFence:
    async def test_old_epochs_are_fenced_on_all_partitions_with_a_request_to_each_leader(
        self,
    ) -> None:
        requests: list[int] = []
        async with logs(2, 4) as (proxy, log):
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda call: requests.append(call.broker_id))
            await log.fence([("t", index) for index in range(4)], [(PID, 1), (OTHER, 33)])
            for index in range(4):
                assert write(proxy, 0, index=index) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert write(proxy, 0, pid=OTHER, epoch=32, index=index) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert write(proxy, 0, epoch=1, index=index) == 0
            assert sorted(requests) == [1, 2]
            assert proxy.stats.retries.fences == {"done": 8}

    async def test_nothing_to_fence_is_no_request(self) -> None:
        async with logs() as (proxy, log):
            await log.fence([], [(PID, 1)])
            await log.fence([("t", 0)], [])
            assert proxy.stats.retries.fences == {}

    async def test_what_a_higher_epoch_has_fenced_is_fenced(self) -> None:
        async with logs() as (proxy, log):
            await log.fence([("t", 0)], [(PID, 5)])
            await log.fence([("t", 0)], [(PID, 4), (OTHER, 1)])
            assert {pid: entry.epoch for pid, entry in part(proxy).log.producers.items()} == {PID: 5, OTHER: 1}

    async def test_what_precedes_a_higher_fence_is_readable_once_a_lower_one_returns(self) -> None:
        async with logs(2, replication=2) as (proxy, log):
            proxy.brokers.pause_replication(3 - part(proxy).leader)
            done: list[int] = []

            async def fence(epoch: int) -> None:
                await log.fence([("t", 0)], [(PID, epoch)])
                done.append(part(proxy).high_watermark)

            async with trio.open_nursery() as nursery:
                for epoch, markers in ((5, 1), (4, 2)):
                    nursery.start_soon(fence, epoch)
                    await eventually(lambda markers=markers: part(proxy).log.end_offset == markers or bool(done))
                assert done == []
                proxy.brokers.resume_replication(3 - part(proxy).leader)
            assert done == [2, 2]

    async def test_a_leader_that_moves_and_an_answer_that_is_lost_are_asked_again(self) -> None:
        async with logs(2) as (proxy, log):

            def move(_: Call) -> None:
                if part(proxy).leader == 1:
                    proxy.brokers.move_leader("t", 0, 2)

            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, move)
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: CloseAfter(), times=1)
            await log.fence([("t", 0)], [(PID, 1)])
            assert write(proxy, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert proxy.stats.upstream.errors.pop("broker_log") == 1

    @pytest.mark.parametrize("error", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
    @pytest.mark.idle_clock
    async def test_a_refusal_is_waited_for_instead_and_told_once_in_a_while(self, error: ErrorCode) -> None:
        async with logs(upstream_request_timeout_ms=200) as (proxy, log):
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: Edit(refusing(error)))
            with structlog.testing.capture_logs() as lines:
                began = trio.current_time()
                await log.fence([("t", 0)], [(PID, 1)])
                assert trio.current_time() - began >= 0.2
                await log.fence([("t", 0)], [(PID, 1)])
            assert proxy.stats.retries.fences == {"refused": 2}
            assert ["ClusterAction" in line["grant"] for line in lines] == [True]

    async def test_another_error_is_an_error(self) -> None:
        async with logs() as (proxy, log):
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: Edit(refusing(ErrorCode.INVALID_TXN_STATE)))
            with pytest.raises(RemoteProtocolError, match="WriteTxnMarkers for t-0"):
                await log.fence([("t", 0)], [(PID, 1)])

    async def test_a_topic_that_is_not_there_is_believed_after_a_while(self) -> None:
        async with logs() as (_, log):
            with pytest.raises(RemoteProtocolError, match="none-0 failed with error 3"):
                await log.fence([("none", 0)], [(PID, 1)])

    @pytest.mark.idle_clock
    async def test_it_ends_in_time(self) -> None:
        async with logs(delivery_timeout_ms=100) as (proxy, log):
            proxy.brokers.control(ApiKey.WRITE_TXN_MARKERS, lambda _: CloseAfter())
            with pytest.raises(OSError, match="no leader answered"):
                await log.fence([("t", 0)], [(PID, 1)])
            proxy.stats.upstream.errors.clear()


def refusing(error: ErrorCode) -> Callable[[object], None]:
    def change(response: object) -> None:
        assert isinstance(response, WriteTxnMarkersResponse)
        for marker in response.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    row.error_code = error

    return change


class TestSurvey:
    async def test_how_far_it_can_be_read_and_who_is_known(self) -> None:
        async with logs(2, 2) as (proxy, log):
            write(proxy, 0, records=3)
            found = await log.survey([("t", 0), ("t", 1)])
            assert found == {("t", 0): (3, {PID: (PID, 0, 2, START_MS)}), ("t", 1): (0, {})}

    async def test_only_the_leaders_word_counts(self) -> None:
        """A replica that does not lead any more describes its producers all the same."""
        asked: list[ApiKey] = []
        async with logs(2) as (proxy, log):
            write(proxy, 0)
            first = part(proxy).leader

            def fail(_: Call) -> CloseAfter | None:
                """The leader moves, and another broker answers in the end."""
                if part(proxy).leader != first:
                    return None
                proxy.brokers.move_leader("t", 0, 3 - first)
                return CloseAfter()

            proxy.brokers.control(ApiKey.DESCRIBE_PRODUCERS, fail)
            for api in (ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_PRODUCERS):
                proxy.brokers.control(api, lambda _, api=api: asked.append(api))
            assert set((await log.survey([("t", 0)]))["t", 0][1]) == {PID}
            assert asked.count(ApiKey.LIST_OFFSETS) == 2
            assert asked[-2:] == [ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_PRODUCERS]
            proxy.stats.upstream.errors.clear()

    @pytest.mark.idle_clock
    async def test_a_partition_that_is_not_there_is_believed_at_once_for_a_while(self) -> None:
        asked: list[Call] = []
        async with logs() as (proxy, log):

            async def questions() -> int:
                asked.clear()
                failed: Failures = {}
                assert await log.survey([("t", 1)], failed) == {}
                assert set(failed) == {("t", 1)}
                return len(asked)

            proxy.brokers.control(ApiKey.METADATA, lambda call: asked.append(call))
            assert await questions() == 10
            assert await questions() == 1
            await trio.sleep(31)
            assert await questions() >= 10
            proxy.brokers.add_partitions(proxy.brokers.topics["t"], 1, 1)
            assert set(await log.survey([("t", 1)])) == {("t", 1)}

    async def test_leaders_are_remembered_until_they_are_none(self) -> None:
        asked: list[Call] = []
        async with logs(2, 2) as (proxy, log):
            write(proxy, 0)
            proxy.brokers.control(ApiKey.METADATA, lambda call: asked.append(call) if call.request.topics else None)
            places = [("t", 0), ("t", 1)]
            for _ in range(3):
                await log.survey(places)
                await read(log, 0, 1)
            assert len(asked) == 1
            proxy.brokers.move_leader("t", 0, 3 - part(proxy).leader)
            await log.survey(places)
            assert len(asked) == 2


class TestRead:
    async def test_the_batches_that_overlap(self) -> None:
        async with logs() as (proxy, log):
            for sequence in (0, 3, 6, 9):
                write(proxy, sequence, records=3)
            assert sequences(await read(log, 4, 7)) == [3, 6]
            assert sequences(await read(log, 0, 12)) == [0, 3, 6, 9]
            assert proxy.stats.retries.readbacks == 2
            assert proxy.stats.retries.readback_bytes > 0

    async def test_what_is_deleted_already_is_left_out(self) -> None:
        async with logs() as (proxy, log):
            for sequence in range(4):
                write(proxy, sequence)
            part(proxy).log.delete_before(2)
            assert sequences(await read(log, 0, 4)) == [2, 3]

    async def test_it_waits_for_what_is_not_there_yet(self) -> None:
        async with logs() as (proxy, log):
            write(proxy, 0)

            async def later(call: Call) -> None:
                write(proxy, 1)
                proxy.brokers.notify()

            proxy.brokers.control(ApiKey.FETCH, later)
            assert sequences(await read(log, 0, 2)) == [0, 1]

    @pytest.mark.idle_clock
    async def test_but_not_for_ever(self) -> None:
        async with logs(upstream_request_timeout_ms=100) as (proxy, log):
            write(proxy, 0)
            with pytest.raises(OSError, match="read up to 1, no further"):
                await read(log, 0, 5)

    async def test_a_log_that_ends_before_has_nothing(self) -> None:
        async with logs() as (_, log):
            with pytest.raises(OSError, match="ends before 3"):
                await read(log, 3, 5)


class TestTails:
    async def tail(self, log: BrokerLog, *pids: int) -> list[tuple[int, int]]:
        batches = (await log.tails([("t", 0)], set(pids)))["t", 0]
        return [(batch.header.producer_id, batch.header.base_sequence) for batch in batches]

    async def test_the_last_five_batches_of_each_producer(self) -> None:
        async with logs() as (proxy, log):
            for sequence in range(100):
                write(proxy, sequence, at_ms=sequence * 10_000)
                write(proxy, sequence, pid=OTHER, at_ms=sequence * 10_000)
                write(proxy, sequence, pid=3)
            assert await self.tail(log, PID) == [(PID, n) for n in range(95, 100)]
            assert await self.tail(log, PID, OTHER) == [(pid, n) for n in range(95, 100) for pid in (PID, OTHER)]

    async def test_or_those_of_two_seconds_by_its_own_clock(self) -> None:
        async with logs() as (proxy, log):
            for sequence in range(100):
                write(proxy, sequence, at_ms=sequence * 100)
            for sequence in range(50):
                write(proxy, sequence, pid=OTHER, at_ms=10**9)
            assert await self.tail(log, PID) == [(PID, n) for n in range(79, 100)]

    async def test_a_fence_at_the_end_hides_nothing_and_is_left_out(self) -> None:
        async with logs() as (proxy, log):
            for sequence in range(3):
                write(proxy, sequence)
            await log.fence([("t", 0)], [(PID, 1), (OTHER, 1)])
            assert await self.tail(log, PID, OTHER) == [(PID, 0), (PID, 1), (PID, 2)]

    async def test_a_producer_unknown_to_the_partition_costs_no_read(self) -> None:
        async with logs() as (proxy, log):
            write(proxy, 0, pid=3)
            assert await self.tail(log, PID) == []
            assert (proxy.stats.retries.readbacks, await log.tails([], {PID})) == (0, {})

    async def test_no_more_than_the_bytes(self) -> None:
        async with logs(recovery_max_bytes=1024) as (proxy, log):
            for sequence in range(6):
                write(proxy, sequence, at_ms=sequence * 10_000)
            for sequence in range(500):
                write(proxy, sequence, pid=3)
            assert await self.tail(log, PID) == []
            assert 0 < proxy.stats.retries.readback_bytes < 8 * 1024

    async def test_nothing_is_read_below_a_floor_or_before_a_producers_first_batch(self) -> None:
        async with logs() as (proxy, log):
            for sequence in range(1000):
                write(proxy, sequence, pid=3)
            write(proxy, 0)
            most = 100 * len(part(proxy).log.read(0, 1, whole_first_batch=True))
            for options in ({"floors": {("t", 0): 990}}, {"first_epochs": {PID: 0}}):
                before = proxy.stats.retries.readback_bytes
                tails = await log.tails([("t", 0)], {PID}, **options)
                assert sequences(tails["t", 0]) == [0]
                assert proxy.stats.retries.readback_bytes - before < most
            assert proxy.stats.retries.readbacks_failed == {}

    async def test_the_last_batch_that_the_leader_knows_is_waited_for(self) -> None:
        """A batch above the high watermark can't be read yet."""

        def before_the_last(response: object) -> None:
            for topic in response.topics:  # type: ignore[attr-defined]
                for row in topic.partitions:
                    row.offset = max(row.offset - 2, 0)

        async with logs() as (proxy, log):
            for sequence in range(4):
                write(proxy, sequence)
            proxy.brokers.control(ApiKey.LIST_OFFSETS, lambda _: Edit(before_the_last))
            assert await self.tail(log, PID) == [(PID, n) for n in range(4)]

    async def test_many_partitions_at_once(self) -> None:
        async with logs(2, 6) as (proxy, log):
            for index in range(6):
                write(proxy, index, index=index)
            tails = await log.tails([("t", index) for index in range(6)], {PID})
            assert {place: sequences(batches) for place, batches in tails.items()} == {
                ("t", index): [index] for index in range(6)
            }


async def test_batches_larger_than_an_answer_starve_no_partition() -> None:
    first: list[int] = []
    async with logs(1, 20, recovery_max_bytes=100_000) as (proxy, log):
        for index in range(20):
            for sequence in range(2):
                rows = [Record(0, START_MS, None, bytes(40_000), ())]
                data = build_batch(rows, producer_id=PID, producer_epoch=0, base_sequence=sequence)
                assert part(proxy, index).log.append(memoryview(data), 0, START_MS).error == 0
        proxy.brokers.control(ApiKey.FETCH, lambda call: first.append(call.request.topics[0].partitions[0].partition))
        tails = await log.tails([("t", index) for index in range(20)], {PID}, first_epochs={PID: 0})
        assert all(sequences(tails["t", index]) == [0, 1] for index in range(20))
        assert proxy.stats.retries.readback_bytes < 42 * 41_000
        assert all(one != other for one, other in pairwise(first)), "each in its turn"


@pytest.mark.kafka
async def test_a_real_broker_is_fenced_and_read(kafka: RealKafka) -> None:
    topic = f"broker-log-{uuid.uuid4().hex[:12]}"
    with ClusterClient(kafka.bootstrap, timeout=12) as client:
        client.create_topic(topic, partitions=2)
        now_ms = int(time.time() * 1000)

        def send(sequence: int, epoch: int = 0, pid: int = PID) -> int:
            rows = [Record(n, now_ms + sequence * 10_000, None, b"x" * 100, ()) for n in range(2)]
            data = build_batch(rows, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
            return client.produce(topic, 0, data).error_code

        for sequence in range(0, 20, 2):
            assert send(sequence) == 0
            assert send(sequence, pid=3) == 0
        async with running(kafka.bootstrap) as proxy:
            await eventually(lambda: proxy.stats.upstream.ready)
            log = BrokerLog(proxy.cluster, proxy.config, proxy.stats.retries)
            try:
                assert (await log.survey([(topic, 0)]))[topic, 0][1][PID].last_sequence == 19
                await log.fence([(topic, 0), (topic, 1)], [(PID, 32), (OTHER, 32)])
                assert send(20) == ErrorCode.INVALID_PRODUCER_EPOCH
                tails = await log.tails([(topic, 0), (topic, 1)], {PID, OTHER})
                assert sequences(tails[topic, 0]) == [10, 12, 14, 16, 18]
                assert tails[topic, 1] == []
                low = tails[topic, 0][0].header.base_offset
                assert sequences(await read(log, low, low + 4, topic)) == [10, 10]
                found: list[int] = []
                failed: Failures = {}
                spots = {(topic, 0): [low, low + 7]}
                await log.read_at(spots, lambda _, batch: found.append(batch.header.base_offset), failed)
                assert (found, failed) == ([low, low + 6], {})
                end, known = (await log.survey([(topic, 1)]))[topic, 1]
                assert (end, set(known)) == (2, {PID, OTHER}), "markers only"
                tails = await log.tails([(topic, 0)], {PID}, first_epochs={PID: 0}, unseen={(topic, 0): {PID: 40}})
                assert sequences(tails[topic, 0]) == [], "nothing but markers lies behind"
                with pytest.raises(RemoteProtocolError, match="failed with error 3"):
                    await log.fence([(topic, 9)], [(PID, 32)])
                assert await log.topic_name(bytes(15) + b"\xff") is None
            finally:
                log.close()


async def test_producers_and_names() -> None:
    async with logs() as (proxy, log):
        write(proxy, 4, epoch=2, records=3)
        assert (await log.survey([("t", 0)]))["t", 0][1][PID] == (PID, 2, 6, START_MS)
        assert await log.topic_name(proxy.brokers.topics["t"].topic_id) == "t"
        assert await log.topic_name(bytes(15) + b"\xff") is None


async def test_a_connection_that_is_in_use_at_the_end_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[BrokerClient] = []
    asked = trio.Event()

    async def spy(*arguments: Any) -> BrokerClient:
        opened.append(await opens(*arguments))
        return opened[-1]

    def slow(_: Call) -> Delay:
        asked.set()
        return Delay(before=0.05)

    async with logs() as (proxy, log), trio.open_nursery() as nursery:
        opens = BrokerClient.open
        monkeypatch.setattr(BrokerClient, "open", spy)
        proxy.brokers.control(ApiKey.DESCRIBE_PRODUCERS, slow)
        nursery.start_soon(log.survey, [("t", 0)])
        await asked.wait()
        log.close()
    assert [client.closed for client in opened] == [True]
