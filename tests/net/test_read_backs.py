"""Batches in doubt are read back together: few requests, and each by itself where one fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.messages import ApiKey
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.unconfirmed import Stamp, UnconfirmedBatch
from kproxy.net.broker_log import BrokerLog
from kproxy.net.log_reading import Done, LogReading
from kproxy.net.read_backs import ReadBacks
from tests.net.harness import Proxied, proxied

pytestmark = pytest.mark.idle_clock

PID = 1 << 62 | 7


@dataclass
class Case:
    proxy: Proxied
    reads: ReadBacks = field(init=False)
    noted: "Noted" = field(init=False)
    recalled: list[tuple[UnconfirmedBatch, int]] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    cuts: list[tuple[TrackKey, int]] = field(default_factory=list)

    def fail(self, reason: str, count: int) -> None:
        self.failed[reason] = self.failed.get(reason, 0) + count

    def write(self, index: int, sequence: int, *, wanted: bool = True, size: int = 1) -> UnconfirmedBatch:
        """A batch of two records, and its entry, which is to be read back if ``wanted``."""
        now = self.proxy.brokers.clock()
        rows = [Record(at, now, None, bytes(size)) for at in range(2)]
        data = build_batch(rows, producer_id=PID, producer_epoch=0, base_sequence=sequence)
        log = self.proxy.brokers.topics["t"].partitions[index].log
        offset = log.append(memoryview(data), 0, now).base_offset
        entry = UnconfirmedBatch((b"t", index), Stamp(PID, 0, sequence, offset, 2), 1, False, False, 0)
        if wanted:
            self.reads.add(("t", index), entry)
        return entry


class Noted(LogReading):
    """Notes what is read for which entry."""

    def __init__(self, recalled: list[tuple[UnconfirmedBatch, int]]) -> None:
        super().__init__(1 << 20, trio.CapacityLimiter(1))
        self._recalled = recalled
        self.finished = 0

    def take(self, data: bytes, done: Done) -> None:
        self._recalled.append((done.__self__, read_header(data).base_offset))  # type: ignore[attr-defined]
        super().take(data, done)

    async def finish(self) -> None:
        self.finished += 1
        await super().finish()


@asynccontextmanager
async def case(brokers: int = 1, partitions: int = 1, **options: Any) -> AsyncIterator[Case]:
    async with proxied(brokers, **options) as proxy:
        proxy.brokers.create_topic("t", partitions)
        broker_log = BrokerLog(proxy.cluster, proxy.config, proxy.stats.retries)
        found = Case(proxy)
        found.noted = Noted(found.recalled)
        found.reads = ReadBacks(broker_log, found.noted, found.fail, lambda *cut: found.cuts.append(cut))
        try:
            yield found
        finally:
            broker_log.close()


async def test_many_entries_share_a_few_requests() -> None:
    fetches: list[object] = []
    async with case(2, 20) as it:
        entries = [it.write(index, 2 * number, wanted=number % 3 > 0) for number in range(30) for index in range(20)]
        it.proxy.brokers.control(ApiKey.FETCH, fetches.append)
        await it.reads.read()
        wanted = [entry for entry in entries if entry.stamp.sequence // 2 % 3]
        assert {id(entry): offset for entry, offset in it.recalled} == {
            id(entry): entry.stamp.base_offset for entry in wanted
        }
        assert (len(it.recalled), len(it.reads), it.failed) == (400, 0, {})
        assert it.noted.finished > 1, "what is kept of a response is read before the next one comes"
        assert len(fetches) <= 2 * 3


async def test_what_lies_far_apart_is_not_read_in_between() -> None:
    async with case() as it:
        for sequence in range(0, 3000, 2):
            it.write(0, sequence, wanted=sequence in (0, 2998))
        await it.reads.read()
        assert [offset for _, offset in it.recalled] == [0, 2998]
        assert it.proxy.stats.retries.readback_bytes < 500


async def test_entries_of_one_batch_are_all_recalled() -> None:
    async with case() as it:
        it.reads.add(("t", 0), it.write(0, 0))
        await it.reads.read()
        assert len(it.recalled) == 2


async def test_what_was_deleted_or_is_of_others_is_not_found() -> None:
    async with case() as it:
        for sequence in range(0, 8, 2):
            it.write(0, sequence)
        other = it.write(0, 8, wanted=False)
        other.stamp.epoch = 5
        it.reads.add(("t", 0), other)
        it.proxy.brokers.topics["t"].partitions[0].log.delete_before(4)
        await it.reads.read()
        assert [offset for _, offset in it.recalled] == [4, 6]
        assert (it.failed, len(it.reads)) == ({"gone": 3}, 0)


async def test_one_that_fails_is_left_for_another_attempt_and_the_others_are_had() -> None:
    async with case(2, 3, delivery_timeout_ms=1000) as it:
        for index in range(3):
            it.write(index, 0)
        it.reads.add(("none", 0), it.write(0, 2, wanted=False))
        partition = it.proxy.brokers.topics["t"].partitions[1]
        leader, partition.leader = partition.leader, -1
        with pytest.raises(OSError, match="t-1"):
            await it.reads.read()
        assert (len(it.recalled), len(it.reads)) == (2, 1)
        partition.leader = leader
        await it.reads.read()
        assert (len(it.recalled), len(it.reads), it.failed) == (3, 0, {"unreadable": 1})


async def test_a_log_that_stays_too_short_was_cut() -> None:
    """The leader may be one that others have replaced: it is asked again for ten seconds."""
    async with case() as it:
        for sequence in range(0, 8, 2):
            it.write(0, sequence)
        it.proxy.brokers.topics["t"].partitions[0].log.truncate(4)
        began = trio.current_time()
        while it.reads:
            try:
                await it.reads.read()
            except OSError as error:
                assert "ends " in str(error)
                assert (it.failed, it.cuts) == ({}, [])
                await trio.sleep(1)
        assert 10 <= trio.current_time() - began < 12
        assert it.failed == {"gone": 2}
        assert it.cuts == [((b"t", 0), 4)]
        assert [offset for _, offset in it.recalled] == [0, 2]


async def test_a_log_that_was_too_short_for_a_while_is_read() -> None:
    async with case() as it:
        it.write(0, 0)
        it.write(0, 2)
        it.proxy.brokers.topics["t"].partitions[0].log.truncate(2)
        with pytest.raises(OSError, match="t-0 ends at 2"):
            await it.reads.read()
        it.write(0, 2, wanted=False)
        await trio.sleep(60)
        await it.reads.read()
        assert [offset for _, offset in it.recalled] == [0, 2]
        assert (it.failed, it.cuts) == ({}, [])
