"""Producer ids that the log does not know: told, waited for, and rejected, but never one that the log may yet know."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec.messages import ErrorCode
from kproxy.net.socket_network import SocketNetwork
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.net.txn.reports import report_unknown
from kproxy.net.txn.trio_time import TrioTime
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import LogPosition
from kproxy.txn.views import Views
from tests.txn.bodies import claim, producer, reject

X, Y, Z = (producer(number, 0).producer_id for number in (900, 901, 902))
GRACE_S = 900.0


@dataclass
class Log:
    """A transaction log that says what a test says."""

    views: Views = field(default_factory=Views)
    wanted: trio.Event = field(default_factory=trio.Event)
    opened: trio.Event = field(default_factory=trio.Event)
    restarts: int = 0
    rejected: list[int] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    #: What is done while it is read.
    meanwhile: Any = None
    offset: int = 0

    def say(self, body: Any, name: str = "a") -> None:
        self.views.apply(0, LogPosition(self.offset, 0), *encode(Entry(name, body)))
        self.offset += 1

    def meet(self, *producer_ids: int, offset: int = 5) -> None:
        for producer_id in producer_ids:
            self.views.met(producer_id, "t", 0, offset)

    async def read_all(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        if self.meanwhile is not None:
            self.meanwhile()

    async def reject(self, producer_id: int) -> None:
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        self.rejected.append(producer_id)
        self.say(reject(producer_id), "")

    def rejects(self, *, by_itself: bool = True) -> tuple[Rejects, TransactionStats]:
        stats = TransactionStats()
        self.opened.set()
        made = Rejects(
            self,  # type: ignore[arg-type]  # as far as it is asked
            self.read_all,
            stats,
            TrioTime(SocketNetwork().wall),
            report_unknown,
            grace_s=GRACE_S,
            by_itself=by_itself,
        )
        return made, stats


async def refused(work: Any) -> TxnError:
    with pytest.raises(TxnError) as caught:
        await work
    return caught.value


async def test_an_id_is_reported_and_rejected_after_the_grace(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, stats = log.rejects()
    assert not await rejects.look()
    assert (stats.unknown, stats.oldest_unknown) == (0, None)
    log.meet(X)
    with capture_logs() as told:
        assert not await rejects.look()
        await trio.sleep(GRACE_S - 1)
        assert not await rejects.look()
    (line,) = told
    assert line["log_level"] == "warning"
    assert {name: line[name] for name in ("topic", "partition", "offset", "producer_id", "command")} == {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "producer_id": X,
        "command": f"kproxy txn reject {X}",
    }
    assert line["rejected_in_s"] == GRACE_S
    assert stats.unknown == 1
    assert stats.oldest_unknown == pytest.approx(SocketNetwork().wall(), abs=60)
    await trio.sleep(1)
    assert await rejects.look()
    assert log.rejected == [X]
    assert (stats.unknown, stats.oldest_unknown, stats.rejected) == (0, None, 1)
    assert not await rejects.look()


async def test_the_oldest_is_reported_since_when_it_was_met(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, stats = log.rejects()
    began = SocketNetwork().wall()
    await trio.sleep(500)
    log.meet(X)
    await rejects.look()
    await trio.sleep(GRACE_S - 1)
    log.meet(Y)
    await rejects.look()
    assert stats.oldest_unknown == pytest.approx(began + 500, abs=60)


async def test_the_grace_passes_though_nobody_could_look(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    await rejects.look()
    await trio.sleep(GRACE_S + 1)
    assert await rejects.look()
    assert log.rejected == [X]


async def test_one_that_is_met_after_the_grace_is_told_to_be_rejected_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    await rejects.look()
    await trio.sleep(GRACE_S + 1)
    log.meet(Y)
    with capture_logs() as told:
        await rejects.look()
    assert [line["rejected_in_s"] for line in told if "rejected_in_s" in line] == [0.0]


async def test_only_the_one_that_is_asked_for_is_rejected() -> None:
    log = Log()
    rejects, stats = log.rejects()
    log.meet(Z, X, Y)
    await rejects.look()
    await rejects.reject(Y)
    assert log.rejected == [Y]
    assert stats.unknown == 2


async def test_the_task_checks_and_continues_at_once_after_a_rejection(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    log.meanwhile = lambda: log.meet(Y) if log.rejected else None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rejects.run)
        await trio.sleep(GRACE_S + 20)
        nursery.cancel_scope.cancel()
    assert log.rejected == [X]  # nobody has met the next one before the log was read
    log.meanwhile = None
    log.meet(Y)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rejects.run)
        await trio.sleep(5.01)
        assert log.rejected == [X, Y]
        log.meet(Z)
        await trio.sleep(0.1)
        assert log.rejected == [X, Y, Z]
        nursery.cancel_scope.cancel()


async def test_none_is_rejected_that_the_log_turns_out_to_know(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, stats = log.rejects()
    log.meet(X)
    log.meanwhile = lambda: log.say(claim(1, producer(900, 0)))
    with capture_logs() as told:
        assert not await rejects.look()
    assert not told
    assert stats.unknown == 0


async def test_what_is_met_while_the_log_is_read_is_judged_the_next_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log()
    rejects, stats = log.rejects()
    log.meet(X)
    assert not await rejects.look()
    await trio.sleep(GRACE_S)
    log.meanwhile = lambda: log.meet(Y)
    assert await rejects.look()
    assert log.rejected == [X]
    assert stats.unknown == 0
    assert await rejects.look()
    assert log.rejected == [X, Y]


async def test_those_that_are_met_after_the_first_are_not_waited_for_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    await rejects.look()
    await trio.sleep(GRACE_S)
    await rejects.look()
    log.meet(Y)
    assert await rejects.look()
    log.restarts += 1  # another loss, of which nobody may know yet
    log.meet(Z)
    assert not await rejects.look()
    await trio.sleep(GRACE_S)
    assert await rejects.look()
    assert log.rejected == [X, Y, Z]


async def test_when_there_were_none_for_long_the_next_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    await rejects.look()
    await trio.sleep(GRACE_S)
    await rejects.look()
    await trio.sleep(GRACE_S + 1)
    await rejects.look()
    log.meet(Y)
    assert not await rejects.look()
    assert log.rejected == [X]


async def test_the_grace_does_not_begin_while_none_is_met(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, _ = log.rejects()
    for _look in range(3):
        await rejects.look()
        await trio.sleep(GRACE_S)
    log.meet(X)
    assert not await rejects.look()


async def test_one_that_another_instance_rejects_is_not_rejected_again(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, stats = log.rejects()
    log.meet(X)
    await rejects.look()
    log.meanwhile = lambda: log.say(reject(X), "")
    await rejects.reject(X)
    assert (stats.unknown, stats.rejected) == (0, 0)

    log.meanwhile = None
    log.meet(Y)
    await rejects.look()
    await trio.sleep(GRACE_S)
    readings = iter([lambda: None, lambda: log.say(reject(Y), "")])
    log.meanwhile = lambda: next(readings)()
    assert not await rejects.look()
    assert (log.rejected, stats.rejected) == ([], 0)


async def test_one_is_rejected_once_all_of_the_log_was_read(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.opened = trio.Event()
    log.meet(X)
    error = await refused(rejects.reject(X))
    assert error.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.wanted.is_set()
    assert log.rejected == []
    log.opened.set()
    await rejects.reject(X)
    assert log.rejected == [X]


async def test_nothing_is_rejected_while_the_log_can_not_be_read_or_written(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log()
    rejects, stats = log.rejects()
    log.meet(X)
    log.failures = [OSError("no leader")]
    assert not await rejects.look()
    assert stats.unknown == 0
    assert not await rejects.look()
    await trio.sleep(GRACE_S)
    log.meanwhile = lambda: log.failures.append(AppendUnknown(0, ErrorCode.REQUEST_TIMED_OUT))
    assert not await rejects.look()
    log.meanwhile, log.failures = None, []
    assert await rejects.look()


async def test_who_is_to_wait_rejects_none_by_itself(autojump_clock: trio.testing.MockClock) -> None:
    log = Log()
    rejects, stats = log.rejects(by_itself=False)
    log.meet(X)
    with capture_logs() as told:
        await rejects.look()
    assert told[0]["rejected_in_s"] is None
    await trio.sleep(2 * GRACE_S)
    assert not await rejects.look()
    await rejects.reject(X)
    assert log.rejected == [X]
    assert (stats.unknown, stats.rejected) == (0, 1)
    await rejects.reject(X)
    assert log.rejected == [X]


async def test_of_many_some_are_reported() -> None:
    for many, more in ((50, [30]), (20, [])):
        log = Log()
        rejects, stats = log.rejects()
        log.meet(*(producer(number, 0).producer_id for number in range(1, many + 1)))
        with capture_logs() as told:
            await rejects.look()
        assert [line["count"] for line in told[20:]] == more
        assert stats.unknown == many


async def test_what_must_not_be_rejected_is_refused() -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.say(claim(1, producer(901, 0)), "pay")
    error = await refused(rejects.reject(7))
    assert (error.error_code, "7 is no producer id of kproxy's" in error.message) == (ErrorCode.INVALID_REQUEST, True)
    error = await refused(rejects.reject(Y))
    assert (error.error_code, "it is pay's" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    error = await refused(rejects.reject(Z))
    assert (error.error_code, str(Z) in error.message) == (ErrorCode.RESOURCE_NOT_FOUND, True)
    log.meet(X)
    log.meanwhile = lambda: log.say(claim(2, producer(900, 0)), "sell")
    error = await refused(rejects.reject(X))
    assert (error.error_code, "it is sell's" in error.message) == (ErrorCode.INVALID_TXN_STATE, True)
    assert log.rejected == []


async def test_a_caller_learns_that_the_log_can_not_be_read() -> None:
    log = Log()
    rejects, _ = log.rejects()
    log.meet(X)
    for producer_id in (X, Z):
        log.failures = [OSError("no leader")]
        error = await refused(rejects.reject(producer_id))
        assert error.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "no leader" in error.message
