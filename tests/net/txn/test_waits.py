"""Readers of committed data through the whole shell: they wait for decisions, and skip hidden data."""

import tracemalloc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import trio
import trio.testing

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
)
from kproxy.codec.batch import Record, build_batch, iter_records, read_header
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.net.txn.waits import CommittedReading, wait
from kproxy.proxy.commands import WaitForLog
from kproxy.proxy.handlers.base import Park, Stable
from kproxy.proxy.session import Session
from kproxy.txn.ids import TXN_BITS
from kproxy.txn.last_stable import Question
from kproxy.txn.verdict import Verdict
from tests.net.harness import PATIENCE, FrameClient, Proxied, fetch, proxied

pytestmark = pytest.mark.idle_clock

PID = TXN_BITS | 9
NOW = 4_000_000_000_000


@dataclass
class Log:
    """A transaction log that says what a test says."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    bounds: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Bounds that are announced, and not read yet.
    unread: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Nobody can read more of it.
    silent: bool = False
    #: Where readers had to stop: producer id, topic, partition, offset.
    stopped: list[tuple[Any, ...]] = field(default_factory=list)
    version: int = 0
    waiting: int = 0
    _event: trio.Event = field(default_factory=trio.Event)

    def verdict(self, producer_id: int, epoch: int) -> Verdict:
        return self.verdicts.get(epoch, Verdict.UNDECIDED)

    def is_other_copy(self, *_: Any) -> bool:
        return False

    def bound(self, topic: str, partition: int) -> int | None:
        return self.bounds.get((topic, partition))

    def met(self, *where: Any) -> None:
        self.stopped.append(where)

    async def read_to_end(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.silent:
            await trio.sleep_forever()
        self.bounds.update(self.unread)
        self.unread.clear()

    def decide(self, epoch: int, verdict: Verdict) -> None:
        self.verdicts[epoch] = verdict
        self.tell()

    def tell(self) -> None:
        self.version += 1
        self._event.set()
        self._event = trio.Event()

    async def changed(self, seen: int) -> None:
        self.waiting += 1
        try:
            while self.version <= seen:
                await self._event.wait()
        finally:
            self.waiting -= 1


@asynccontextmanager
async def reading(**options: Any) -> AsyncIterator[tuple[Proxied, Log]]:
    """A proxy whose connections follow a log of the test's."""
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t", 2)
        log = Log()
        offsets = StableOffsets(proxy.cluster, proxy.config, proxy.stats.retries, log, log.bound, log.read_to_end)
        server, found = proxy.server, CommittedReading(log, log, offsets.stable, offsets.told)
        server._shared = replace(server._shared, reading=found)
        server._services = replace(server._services, decisions=log, stable=offsets.told)
        try:
            yield proxy, log
        finally:
            offsets.close()


def write(proxy: Proxied, value: bytes, epoch: int = -1, *, sequence: int = 0, partition: int = 0) -> int:
    """A batch in the log, of a transaction or of nobody; its offset."""
    stamp = {"producer_id": PID, "producer_epoch": epoch, "base_sequence": sequence} if epoch >= 0 else {}
    log = proxy.brokers.topics["t"].partitions[partition].log
    done = log.append(memoryview(build_batch([Record(0, NOW, None, value)], **stamp)), 3, NOW)
    assert not done.error
    proxy.brokers.notify()
    return done.base_offset


def values(answer: Any) -> list[bytes | None]:
    (row,) = answer.responses[0].partitions
    assert not row.error_code
    return [record.value for record in iter_records(row.records or b"", max_decompressed_bytes=1 << 20)]


async def wait_for_wait(log: Log) -> None:
    with trio.fail_after(PATIENCE):
        while not log.waiting:  # noqa: ASYNC110  # nobody announces it
            await trio.sleep(0.002)


async def test_an_answer_comes_with_the_decision() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        write(proxy, b"a", 1)
        await client.send(fetch("t", isolation_level=1, max_wait_ms=60_000), 12)
        await wait_for_wait(log)
        log.decide(7, Verdict.COMMITTED)  # another one's
        await wait_for_wait(log)
        log.decide(1, Verdict.COMMITTED)
        assert values(await client.receive()) == [b"a"]


async def test_aborted_data_are_passed_over_and_the_poll_continues_at_the_broker() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        write(proxy, b"a", 1)
        await client.call(ApiVersionsRequest(client_software_name="unknown"), 3)
        await client.send(fetch("t", isolation_level=1, max_wait_ms=60_000), 10)
        await wait_for_wait(log)
        log.decide(1, Verdict.ABORTED)
        with trio.fail_after(PATIENCE):
            while log.waiting:  # noqa: ASYNC110  # nobody announces it
                await trio.sleep(0.002)
        write(proxy, b"b")
        assert values(await client.receive()) == [b"b"]


async def test_without_a_decision_the_response_comes_when_the_time_has_passed() -> None:
    async with reading() as (proxy, _), await proxy.client(1) as client:
        write(proxy, b"a", 1)
        for version in (2, 4, 12):
            assert (
                values(await client.call(fetch("t", isolation_level=int(version > 3), max_wait_ms=30), version)) == []
            )


async def test_without_a_transaction_log_nothing_of_one_is_ever_shown() -> None:
    async with proxied() as proxy, await proxy.client(1) as client:
        proxy.brokers.create_topic("t")
        write(proxy, b"a", 1)
        assert values(await client.call(fetch("t", max_wait_ms=30), 2)) == []


async def test_requests_after_one_that_waits_are_answered_after_it() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        write(proxy, b"a", 1)
        await client.send(fetch("t", isolation_level=1, max_wait_ms=60_000), 12)
        await client.send(fetch("t", isolation_level=0), 12)
        await wait_for_wait(log)
        log.decide(1, Verdict.COMMITTED)
        assert values(await client.receive()) == values(await client.receive()) == [b"a"]


async def test_a_client_that_goes_while_its_answer_waits_leaves_nothing() -> None:
    async with reading() as (proxy, log):
        async with await proxy.client(1) as client:
            write(proxy, b"a", 1)
            await client.send(fetch("t", isolation_level=1, max_wait_ms=60_000), 12)
            await wait_for_wait(log)
        await proxy.at_rest()
        assert not log.waiting


async def test_an_answer_that_waits_survives_the_end_of_the_brokers_connection() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        write(proxy, b"a", 1)
        await client.send(fetch("t", isolation_level=1, max_wait_ms=200), 12)
        await wait_for_wait(log)
        await proxy.fake.stop_broker(1)
        assert values(await client.receive()) == []


async def test_a_long_hidden_run_costs_no_memory() -> None:
    """8 MB in answers of 64 KB: what was looked through is not kept."""
    async with reading() as (proxy, log), await proxy.client(1) as client:
        log.verdicts[1] = Verdict.ABORTED
        for number in range(500):
            write(proxy, bytes(16_000), 1, sequence=number)
        write(proxy, b"visible")
        request = fetch("t", isolation_level=1, max_wait_ms=30_000)
        request.topics[0].partitions[0].partition_max_bytes = 65_536
        await client.call(ApiVersionsRequest(), 0)
        tracemalloc.start()
        try:
            assert values(await client.call(request, 10)) == [b"visible"]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2 << 20


async def test_a_marker_passes_what_is_hidden_at_the_end() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        log.verdicts[1] = Verdict.ABORTED
        write(proxy, b"a", 1)
        write(proxy, b"b", 1, sequence=1)
        await client.call(ApiVersionsRequest(client_software_name="apache-kafka-java"), 3)
        answer = await client.call(fetch("t", isolation_level=1, max_wait_ms=30_000), 12)
        (row,) = answer.responses[0].partitions
        header = read_header(row.records)
        assert (header.base_offset, header.is_control, header.partition_leader_epoch) == (1, True, 3)


def latest(partitions: Mapping[int, int]) -> ListOffsetsRequest:
    rows = [
        ListOffsetsRequestListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in partitions.items()
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=rows)]
    )


async def ends(client: FrameClient, version: int, times: Mapping[int, int]) -> list[int]:
    answer = await client.call(latest(times), version)
    assert not any(row.error_code for row in answer.topics[0].partitions)
    return [row.offset for row in answer.topics[0].partitions]


async def test_list_offsets_ends_at_what_is_undecided() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        for value in (b"a", b"b"):
            write(proxy, value)
        log.bounds["t", 0] = 1
        write(proxy, b"c", 1)
        write(proxy, b"d", partition=1)
        assert await ends(client, 5, {0: -1, 1: -1}) == [2, 1]
        assert await ends(client, 5, {0: NOW, 1: NOW + 1}) == [0, -1]
        log.decide(1, Verdict.COMMITTED)
        assert await ends(client, 2, {0: -1}) == [3]


def one_batch(offset: int = 0) -> FetchRequest:
    """As a reader asks that lags: no more than the first batch."""
    request = fetch("t", isolation_level=1, max_wait_ms=30)
    request.topics[0].partitions[0].fetch_offset = offset
    request.topics[0].partitions[0].partition_max_bytes = request.max_bytes = 1
    return request


async def stable_in(client: FrameClient, version: int, offset: int = 0) -> int:
    """What a Fetch response says; of old versions the high watermark, which their clients take for the end."""
    (row,) = (await client.call(one_batch(offset), version)).responses[0].partitions
    assert not row.error_code
    return int(row.last_stable_offset if version > 3 else row.high_watermark)


@pytest.mark.parametrize("version", [3, 4, 12])
async def test_the_last_stable_offset_counts_what_is_announced_and_not_read_yet(version: int) -> None:
    """Another instance has announced data, then written them; this one receives the high watermark first."""
    async with reading() as (proxy, log), await proxy.client(1) as client:
        for value in (b"a", b"b"):
            write(proxy, value)
        log.unread["t", 0] = 2
        write(proxy, b"c", 1)
        write(proxy, b"d")
        told = [await stable_in(client, version) for _ in range(3)]
        assert told == [2, 2, 2]
        assert await ends(client, 5, {0: -1}) == [2]
        log.decide(1, Verdict.COMMITTED)
        log.bounds.clear()
        assert await ends(client, 5, {0: -1}) == [4]
        assert await stable_in(client, version) == 4


async def test_fetch_and_list_offsets_report_the_same_once_a_reader_has_looked_further() -> None:
    """What is announced may lie far before what is written: a reader that reads on knows more."""
    async with reading() as (proxy, log), await proxy.client(1) as one, await proxy.client(1) as other:
        for value in (b"a", b"b", b"c"):
            write(proxy, value)
        assert await stable_in(one, 12) == 3
        log.bounds["t", 0] = 1
        write(proxy, b"d")
        write(proxy, b"e", 1)
        assert values(await one.call(fetch("t", isolation_level=1), 12)) == [b"a", b"b", b"c", b"d"]
        assert await stable_in(other, 12) == 4
        assert await ends(other, 5, {0: -1}) == [4]


async def test_where_the_log_can_not_be_read_nothing_is_said_of_the_last_stable_offset() -> None:
    async with reading() as (proxy, log), await proxy.client(1) as client:
        log.silent = True
        for value in (b"a", b"b"):
            write(proxy, value)
        assert [await stable_in(client, 12) for _ in range(3)] == [-1, -1, -1]
        assert await stable_in(client, 3) == 1
        assert values(await client.call(fetch("t", isolation_level=1), 12)) == [b"a", b"b"]


async def test_records_that_the_log_has_lost_are_not_counted_on() -> None:
    async with reading() as (proxy, _), await proxy.client(1) as client:
        for value in (b"a", b"b", b"c"):
            write(proxy, value)
        assert await stable_in(client, 12) == 3
        proxy.brokers.topics["t"].partitions[0].log.truncate(1)
        with trio.fail_after(PATIENCE):
            while await stable_in(client, 12) != 1:  # noqa: ASYNC110  # it is asked once a second
                await trio.sleep(0.1)
        assert await ends(client, 5, {0: -1}) == [1]


# -- when a session continues its response, and with what

WALL = 1.1
UNTIL = 5.2
"""The sum of trio's clock and ``WALL`` is less, when the clock says ``UNTIL - WALL``."""


@dataclass
class Asked:
    """A session that has its response wait ``times`` times until ``UNTIL``."""

    times: int
    #: The time since the epoch and what was found out, of each call.
    calls: list[tuple[float, dict[TopicPartition, int | None]]] = field(default_factory=list)

    def resume(self, waiting: WaitForLog, now: float, told: Mapping[TopicPartition, int | None]) -> WaitForLog | None:
        self.calls.append((now, dict(told)))
        waiting.reason = Park(UNTIL)
        return waiting if len(self.calls) <= self.times else None


async def waited(session: Asked, reason: Park | Stable, log: Log | None) -> None:
    """Has it wait; the log says what partitions are decided up to never."""
    anything: Any = None
    waiting = WaitForLog(anything, anything, anything, reason)
    found = None if log is None else CommittedReading(log, log, trio.sleep_forever, anything)  # type: ignore[arg-type]
    with trio.fail_after(PATIENCE):
        await wait(cast(Session, session), waiting, found, WALL, trio.lowlevel.checkpoint)


async def test_without_a_log_it_is_known_of_no_partition_how_far_it_is_decided() -> None:
    session = Asked(0)
    await waited(session, Stable(Question({("t", 0): 5}, {("t", 1): 7})), None)
    assert session.calls[0][1] == {("t", 0): None, ("t", 1): None}


async def test_a_session_is_asked_at_once_and_when_the_log_says_more() -> None:
    session, log = Asked(2), Log(version=5)
    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(waited, session, Park(UNTIL), log)
        for calls in (1, 2):
            await trio.testing.wait_all_tasks_blocked()
            assert len(session.calls) == calls
            log.tell()
    assert session.calls == [(began + WALL, {})] * 3


@pytest.mark.parametrize("log", [Log(), None], ids=["log", "no log"])
async def test_a_session_continues_when_the_time_has_come(log: Log | None) -> None:
    session = Asked(1)
    await waited(session, Park(UNTIL), log)
    assert [now >= UNTIL for now, _ in session.calls] == [False, True]
