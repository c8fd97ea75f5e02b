"""The transaction log as its owners use it: what it is read and asked for, and who hears of it."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec._generated.transaction_log_key import TransactionLogKey
from kproxy.codec._generated.transaction_reject import TransactionReject
from kproxy.codec.messages import ErrorCode
from kproxy.codec.stored import encode_stored
from kproxy.errors import RemoteProtocolError
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.net.txn.log_follower import LogLost
from kproxy.net.txn.transaction_log import TransactionLog, ViewSink, make_views
from kproxy.txn.ids import log_partition, reject_partition
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.view import LogPosition

PARTITIONS = 5
ENTRY = Entry("id", TransactionExpiry(b"n" * 16))
PLACE = log_partition("id", PARTITIONS)
#: Where the next record is appended.
OFFSET = 7


class Log:
    """Reads, and appends, and notes what it was asked for."""

    def __init__(self) -> None:
        self.partitions = PARTITIONS
        self.version = 3
        self.lag, self.losses, self.restarts = 1, {"truncated": 2}, 4
        self.asked: list[tuple[Any, ...]] = []
        self.is_lost = False
        self.new = trio.Event()
        self.foreign: set[int] = set()
        self.is_settled = True
        self.views: Any = SimpleNamespace(
            of=lambda name: f"view of {name}",
            knows=lambda partition: partition not in self.foreign,
            unsettled=lambda: [] if self.is_settled else ["id"],
        )

    async def changed(self, seen: int) -> None:
        assert seen == self.version
        await self.new.wait()

    async def read_to_end(self, partition: int) -> int:
        self.asked.append(("read", partition))
        return OFFSET

    async def read_to_ends(self, partitions: Iterable[int]) -> None:
        self.asked.append(("read", *partitions))

    async def reached(self, partition: int, offset: int) -> None:
        self.asked.append(("reached", partition, offset))
        if self.is_lost:
            raise LogLost("gone")

    async def append(self, *what: Any) -> int:
        self.asked.append(("append", *what))
        return OFFSET

    async def append_unfenced(self, *what: Any) -> int:
        self.asked.append(("append unfenced", *what))
        return OFFSET


def opened() -> tuple[TransactionLog, Log]:
    at: Any = Log()
    log = TransactionLog(at.views, at, at)
    log.opened.set()
    return log, at


class TestSink:
    async def test_what_changed_a_view_is_passed_on(self) -> None:
        restarts = list[tuple[int, int]]()
        views: Any = SimpleNamespace(
            restart=lambda *what: restarts.append(what),
            apply=lambda *what: [ENTRY] if what == (2, LogPosition(5, 6), b"k", b"v") else [],
            begin_without=lambda partition: [ENTRY] * partition,
        )
        sink, heard = ViewSink(views), list[Entry]()
        sink.listeners += [heard.append, heard.append]
        sink.apply(2, 5, 6, 1, 0, b"k", b"v")
        assert heard == [ENTRY] * 2
        sink.begin_without(2)
        assert heard == [ENTRY] * 6
        sink.restart(2, 9)
        sink.advanced(2, 7)
        assert restarts == [(2, 9)]
        assert heard == [ENTRY] * 6

    async def test_a_kind_of_record_that_is_not_understood_is_reported_once(self) -> None:
        views = make_views()
        unknown, damaged = encode_stored(TransactionLogKey(99, "id"), 0), b""
        with capture_logs() as lines:
            for partition, key in enumerate((unknown, unknown, damaged, damaged)):
                views.apply(partition, LogPosition(0, 0), key, b"")
        assert [line["kind"] for line in lines] == ["newer", "damaged"]


class TestReading:
    async def test_an_id_is_read_in_its_partition_once_the_log_is_open(self) -> None:
        at: Any = Log()
        log = TransactionLog(at.views, at, at)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.read_to_end, "id")
            nursery.start_soon(log.read_all_to_end)
            await wait_all_tasks_blocked()
            assert log.wanted.is_set()
            assert at.asked == []
            log.opened.set()
        assert sorted(at.asked) == sorted([("read", PLACE), ("read", *range(PARTITIONS))])
        assert await log.read_to_end("id") == "view of id"  # type: ignore[comparison-overlap]

    async def test_all_is_not_read_where_one_partition_is_not_understood(self) -> None:
        log, at = opened()
        assert not log.is_foreign("id")
        await log.read_all_to_end()
        at.foreign.add(PLACE)
        assert log.is_foreign("id")
        with pytest.raises(RemoteProtocolError, match="does not understand"):
            await log.read_all_to_end()

    async def test_its_state_is_the_followers(self) -> None:
        log, at = opened()
        assert (log.lag, log.losses, log.restarts) == (at.lag, at.losses, at.restarts)

    async def test_a_pause_is_longer_while_all_is_settled(self, autojump_clock: MockClock) -> None:
        log, at = opened()
        lasted = []
        for is_settled, has_new in ((False, False), (True, False), (True, True)):
            at.is_settled = is_settled
            if has_new:
                at.new.set()
            began = trio.current_time()
            await log.pause(2.0)
            lasted.append(trio.current_time() - began)
        assert lasted == [2.0, 12.0, 2.0]


class TestAppending:
    async def test_a_record_is_read_after_it_was_appended(self) -> None:
        log, at = opened()
        await log.append(ENTRY, 1, 2, 3)
        assert at.asked == [("append", PLACE, 1, 2, 3, [encode(ENTRY)]), ("reached", PLACE, OFFSET + 1)]
        at.is_lost = True
        with pytest.raises(AppendUnknown) as caught:
            await log.append(ENTRY, 1, 2, 3)
        assert caught.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    async def test_one_that_nobody_waits_for_is_appended_alone(self) -> None:
        log, at = opened()
        assert await log.append_unread(ENTRY, 1, 2, 3) == OFFSET
        await log.append_unfenced(ENTRY)
        assert at.asked == [("append", PLACE, 1, 2, 3, [encode(ENTRY)]), ("append unfenced", PLACE, [encode(ENTRY)])]

    async def test_a_rejection_is_read_after_it_was_appended(self) -> None:
        log, at = opened()
        await log.reject(7)
        place, record = reject_partition(7, PARTITIONS), encode(Entry("", TransactionReject(7)))
        assert at.asked == [("append unfenced", place, [record]), ("reached", place, OFFSET + 1)]
