"""What the log keeps of one client, where the log is unread, slow, or switched off.

What would break it: data is written under an epoch that the next kproxy does not know, though the log takes entries;
each transaction waits for a log that takes none; a client that was replaced is continued.
"""

from collections.abc import Awaitable
from typing import NamedTuple

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.kept_epoch import KeptEpoch
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch, StoredEpochs
from kproxy.txn.txn_error import TxnError
from tests.txn.procedures.memory_log import TRIO_TIME

pytestmark = pytest.mark.idle_clock

CLIENT, FIRST, SECOND, THIRD = (Producer(7, epoch) for epoch in (0, 1, 2, 3))


class Log:
    """Notes entries; they are durable at once, or when the test says so."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.enabled = True
        self.opened = trio.Event()
        self.is_slow = False
        self.entries: list[StoredEpoch | None] = []
        self.waiting: list[trio.Event] = []
        if is_open:
            self.opened.set()

    async def epochs(self) -> StoredEpochs:
        raise NotImplementedError

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> trio.Event:
        assert transactional_id == "id"
        self.entries.append(stored)
        event = trio.Event()
        self.waiting.append(event)
        if not self.is_slow:
            self.recover()
        return event

    def has_epochs_before(self, recorded_ms: int) -> bool:
        raise NotImplementedError

    def recover(self) -> None:
        self.is_slow = False
        for event in self.waiting:
            event.set()

    async def recover_after(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.recover()

    def now_ms(self) -> int:
        return 5

    @property
    def upstreams(self) -> list[Producer | None]:
        return [None if entry is None else entry.upstream for entry in self.entries]


class Scene(NamedTuple):
    log: Log
    kept: KeptEpoch
    stats: TransactionStats


def begun(*, is_open: bool = True) -> Scene:
    log, stats = Log(is_open=is_open), TransactionStats()
    kept = KeptEpoch(log, "id", stats, TRIO_TIME, lambda *_, **__: None)
    kept.begin(CLIENT, 60_000)
    return Scene(log, kept, stats)


async def took(call: Awaitable[None]) -> float:
    """The seconds that it waited."""
    before = trio.current_time()
    await call
    return round(trio.current_time() - before, 1)


async def refused(call: Awaitable[None]) -> float:
    """The seconds after which it was refused."""
    before = trio.current_time()
    with pytest.raises(TxnError) as caught:
        await call
    assert caught.value.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return round(trio.current_time() - before, 1)


async def test_an_entry_says_who_has_which_epoch() -> None:
    log, kept, stats = begun()
    kept.put(FIRST, LastEnd.COMMITTED)
    assert await took(kept.written()) == 0
    assert log.entries == [StoredEpoch(CLIENT, FIRST, LastEnd.COMMITTED, 60_000, 5)]
    assert stats.unrecorded == 0


async def test_the_first_data_wait_until_the_entry_is_durable() -> None:
    log, kept, stats = begun()
    log.is_slow = True
    kept.put(FIRST, LastEnd.NONE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.recover_after, 3)
        assert await took(kept.written()) == 3
    assert stats.unrecorded == 0


async def test_the_first_data_wait_until_the_log_was_read_and_has_the_newest_entry() -> None:
    log, kept, stats = begun(is_open=False)
    kept.put(FIRST, LastEnd.NONE)
    kept.put(SECOND, LastEnd.NONE)
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            await trio.sleep(2)
            assert log.entries == []
            log.opened.set()

        nursery.start_soon(read)
        assert await took(kept.written()) == 2
    assert (log.upstreams, stats.unrecorded) == ([SECOND], 0)


class TestASlowLog:
    async def test_a_client_waits_for_it_once(self) -> None:
        log, kept, stats = begun()
        log.is_slow = True
        kept.put(FIRST, LastEnd.NONE)
        assert await took(kept.written()) == 5
        kept.put(SECOND, LastEnd.NONE)
        assert await took(kept.written()) == 0
        assert (log.upstreams, stats.unrecorded) == ([FIRST], 2)  # one that nobody waits for, one that was not written

    async def test_nor_does_a_client_wait_twice_for_one_that_is_still_being_read(self) -> None:
        """Until then nothing is written; after that the newest entry is, and is waited for."""
        log, kept, stats = begun(is_open=False)
        waits = list[float]()
        for upstream in (FIRST, SECOND, THIRD):
            kept.put(upstream, LastEnd.NONE)
            waits.append(await took(kept.written()))
        assert (waits, log.entries, stats.unrecorded) == ([5, 0, 0], [], 3)
        log.opened.set()
        log.is_slow = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.recover_after, 2)
            assert await took(kept.written()) == 2
        assert (log.upstreams, stats.unrecorded) == ([THIRD], 3)

    async def test_a_client_waits_again_after_it_has_recovered(self) -> None:
        log, kept, _ = begun()
        log.is_slow = True
        kept.put(FIRST, LastEnd.NONE)
        await kept.written()
        log.recover()
        kept.put(SECOND, LastEnd.NONE)
        assert await took(kept.written()) == 0
        log.is_slow = True
        kept.put(THIRD, LastEnd.NONE)
        assert await took(kept.written()) == 5
        assert log.upstreams == [FIRST, SECOND, THIRD]

    async def test_what_has_to_be_recorded_waits_for_it_where_an_entry_is_under_way(self) -> None:
        log, kept, _ = begun()
        log.is_slow = True
        kept.put(FIRST, LastEnd.NONE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.recover_after, 1)
            assert await took(kept.recorded(SECOND, LastEnd.COMMITTED)) == 1
        assert log.upstreams == [FIRST, SECOND]

    async def test_what_has_to_be_recorded_is_refused(self) -> None:
        log, kept, _ = begun()
        log.is_slow = True
        assert await refused(kept.recorded(FIRST, LastEnd.COMMITTED)) == 5
        assert await refused(kept.recorded(FIRST, LastEnd.COMMITTED)) == 0
        assert log.upstreams == [FIRST]
        log.recover()
        assert await took(kept.recorded(SECOND, LastEnd.COMMITTED)) == 0
        assert log.upstreams == [FIRST, SECOND]


async def test_where_the_log_is_switched_off_nothing_is_recorded_and_nothing_waits() -> None:
    log, kept, stats = begun()
    log.enabled = False
    kept.put(FIRST, LastEnd.NONE)
    assert await took(kept.written()) == 0
    assert await refused(kept.recorded(FIRST, LastEnd.NONE)) == 0
    kept.leave()
    assert (log.entries, stats.unrecorded) == ([], 0)


async def test_a_log_that_is_switched_off_later_has_recorded_nothing() -> None:
    log, kept, _ = begun()
    log.is_slow = True

    async def switch_off() -> None:
        await trio.sleep(1)
        log.enabled = False
        log.recover()  # set, too, where an entry will never be durable

    async with trio.open_nursery() as nursery:
        nursery.start_soon(switch_off)
        assert await refused(kept.recorded(FIRST, LastEnd.COMMITTED)) == 1


@pytest.mark.parametrize("replaced", [False, True], ids=["left", "replaced"])
async def test_of_a_client_that_leaves_the_log_knows_which_ones_were_replaced(replaced: bool) -> None:
    log, kept, _ = begun()
    kept.put(FIRST, LastEnd.NONE)
    kept.leave(replaced=replaced)
    kept.leave(replaced=replaced)
    kept.put(SECOND, LastEnd.COMMITTED)
    first = Producer(CLIENT.producer_id, CLIENT.epoch + replaced)
    assert log.entries[1:] == [StoredEpoch(first, first, LastEnd.LEFT, 60_000, 5)]
    kept.begin(CLIENT, 60_000)
    kept.put(THIRD, LastEnd.NONE)
    assert log.upstreams == [FIRST, first, THIRD]


async def test_a_client_that_the_brokers_have_forgotten_has_no_entry() -> None:
    log, kept, _ = begun()
    kept.put(FIRST, LastEnd.NONE)
    kept.forget()
    kept.forget()
    kept.put(SECOND, LastEnd.COMMITTED)
    assert log.upstreams == [FIRST, None]


@pytest.mark.parametrize("forgets", [False, True])
async def test_a_client_that_leaves_before_the_log_was_read_waits_for_nothing(forgets: bool) -> None:
    log, kept, _ = begun(is_open=False)
    kept.put(FIRST, LastEnd.NONE)
    (kept.forget if forgets else kept.leave)()
    assert (await took(kept.written()), log.entries) == (0, [])


async def test_that_a_client_has_left_outlives_that_the_brokers_forget_it() -> None:
    """A client of the second protocol leaves with its first end, and is forgotten long after."""
    log, kept, _ = begun()
    kept.leave()
    kept.forget()
    assert log.upstreams == [CLIENT, None]


async def test_a_client_that_is_not_to_be_continued_has_no_entry() -> None:
    log = Log()
    kept = KeptEpoch(log, "id", TransactionStats(), TRIO_TIME, lambda *_, **__: None)
    kept.put(FIRST, LastEnd.COMMITTED)
    kept.leave()
    kept.forget()
    assert (await took(kept.written()), log.entries) == (0, [])
