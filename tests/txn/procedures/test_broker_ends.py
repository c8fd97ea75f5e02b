"""The broker receives the decisions about members, until it is known that it has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio
import trio.testing

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker import broker_side
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.txn.ids import Producer, turn_of
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures import broker_ends
from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import BrokerTransaction
from tests.net.txn.broker.native_stage import TOPIC, Client, Stage, stage
from tests.net.txn.log_harness import PATIENCE
from tests.txn.bodies import claim, decision, native_member, prepare, producer

P0, M, SECOND = producer(100, 0), producer(200, 0), producer(300, 0)
NAME = "slot"


@dataclass
class Log:
    """One view, to which what is appended is applied at once, or when it is read."""

    view: IdView
    appended: list[Producer] = field(default_factory=list)
    broken: bool = False
    #: What is appended is only applied when the log is read to its end.
    late: bool = False
    unread: list[TransactionEnded] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.views = self

    def of(self, name: str) -> IdView | None:
        return self.view if name == self.view.transactional_id else None

    def unsettled(self) -> list[IdView]:
        return [self.view]

    async def pause(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def read_to_end(self, name: str) -> IdView | None:
        for body in self.unread:
            self.view.apply(body, LogPosition(99, 0))
        self.unread.clear()
        return self.of(name)

    async def append_unfenced(self, entry: Entry) -> None:
        if self.broken:
            raise OSError("the log can't be had")
        assert isinstance(entry.body, TransactionEnded)
        self.appended.append(Producer(entry.body.producer_id, entry.body.epoch))
        self.unread.append(entry.body)
        if not self.late:
            await self.read_to_end(entry.transactional_id)


@dataclass
class Scene:
    """A member that has written one record, and is decided."""

    stage: Stage
    log: Log
    ends: BrokerEnds
    stats: Any


@asynccontextmanager
async def decided(
    *, committed: bool = True, written: bool = True, instance: str = "a", two: bool = False
) -> AsyncIterator[Scene]:
    """The claim is of instance "kproxy-1". ``two``: there is another member, whose end is the next one."""
    async with stage() as cast_:
        kproxy = await cast_.kproxy(delivery_timeout_ms=5_000)
        client = Client(kproxy, NAME)
        await client.init()
        await client.write("1")
        told = await BrokerRequests(kproxy.cluster, NAME, 5.0).describe()
        assert told is not None
        native = BrokerTransaction(NAME, Producer(told.producer_id, told.producer_epoch), level=2, timeout_ms=60_000)
        view = IdView("id")
        places = [(TOPIC, 0)] if written else []
        second = (native_member(1, P0, SECOND, 6, "n", native), prepare(6, SECOND, places)) if two else ()
        for offset, body in enumerate(
            (
                claim(1, P0),
                native_member(1, P0, M, 5, "m", native),
                prepare(5, M, places),
                *second,
                decision(1, P0, committed, [P0, M, SECOND] if two else [P0, M]),
            )
        ):
            assert view.apply(body, LogPosition(offset, 0))
        log, stats = Log(view), kproxy.stats.transactions
        told_ends = kproxy.side.ends(cast(Any, log), instance)
        yield Scene(cast_, log, told_ends, stats)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_what_was_decided_is_ended_at_the_broker_and_noted(committed: bool) -> None:
    async with decided(committed=committed) as scene:
        await scene.ends.finish("id")
        assert scene.stage.read() == (["1"] if committed else [])
        assert (scene.log.appended, scene.log.view.ending, scene.stats.torn) == ([M], {}, 0)
        await scene.ends.finish("id")
        await scene.ends.finish("other")
        assert scene.log.appended == [M]


async def test_where_nothing_was_written_the_broker_is_not_asked() -> None:
    async with decided(written=False) as scene:
        await scene.ends.finish("id")
        assert (scene.stage.read(), scene.log.appended) == ([], [M])


async def test_a_repeated_end_is_a_success() -> None:
    async with decided() as scene:
        scene.log.broken = True
        await scene.ends.finish("id")
        assert (scene.stage.read(), scene.log.appended) == (["1"], [])
        scene.log.broken = False
        await scene.ends.finish("id")
        assert (scene.log.appended, scene.stats.torn) == ([M], 0)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_what_the_broker_ended_before_is_torn_if_it_was_committed(committed: bool) -> None:
    async with decided(committed=committed) as scene:
        owner = scene.stage.server.cluster.transactional_ids[NAME]
        owner.fence()
        owner.complete()
        await scene.ends.finish("id")
        assert (scene.log.appended, scene.stats.torn) == ([M], int(committed))


async def test_a_member_that_another_kproxy_ended_meanwhile_is_not_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with decided() as scene:

        async def late(*_: Any, **__: Any) -> None:
            await scene.log.append_unfenced(Entry("id", TransactionEnded(*M)))
            raise TxnError(ErrorCode.PRODUCER_FENCED, "its id was used again")

        monkeypatch.setattr(BrokerRequests, "end", late)
        await scene.ends.finish("id")
        assert scene.stats.torn == 0


@pytest.mark.parametrize(
    "error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
async def test_what_is_open_is_asked_again(error: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    async with decided() as scene:
        with monkeypatch.context() as held:

            async def refused(*_: Any, **__: Any) -> None:
                raise TxnError(error, "not now")

            held.setattr(BrokerRequests, "end", refused)
            await scene.ends.finish("id")
            assert (scene.log.appended, scene.stats.torn) == ([], 0)
        await scene.ends.finish("id")
        assert scene.log.appended == [M]


@pytest.mark.idle_clock
@pytest.mark.parametrize("instance", ["kproxy-1", "another", "zeta"])
async def test_what_was_left_is_ended_in_the_background_by_others_later(
    instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = trio.Event()

    async def end(*_: Any, **__: Any) -> None:
        ended.set()

    async with decided(instance=instance) as scene, trio.open_nursery() as nursery:
        monkeypatch.setattr(BrokerRequests, "end", end)
        began = trio.current_time()
        nursery.start_soon(scene.ends.run)
        with trio.fail_after(20):
            await ended.wait()
        waited = trio.current_time() - began
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        assert scene.log.appended == [M]
    least = 0.0 if instance == "kproxy-1" else broker_ends._OTHERS_SECONDS * (1 + turn_of(instance, "id"))
    assert least <= waited <= least + 2 * broker_ends._SWEEP_SECONDS


@pytest.mark.idle_clock
async def test_an_end_that_is_not_read_in_the_log_yet_is_noted_once() -> None:
    async with decided(instance="kproxy-1") as scene, trio.open_nursery() as nursery:
        scene.log.late = True
        nursery.start_soon(scene.ends.run)
        await trio.sleep(5)
        assert (scene.log.appended, list(scene.log.view.ending)) == ([M], [M])
        nursery.cancel_scope.cancel()


async def test_its_end_is_read_in_the_log_before_the_id_is_used_again() -> None:
    async with decided() as scene:
        scene.log.late = True
        await scene.ends.finish("id")
        assert (scene.log.appended, scene.log.view.ending) == ([M], {})


async def test_an_end_that_is_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with decided() as scene:
        asked, answered, done = trio.Event(), trio.Event(), trio.Event()

        async def slow(*_: Any, **__: Any) -> None:
            asked.set()
            await answered.wait()

        async def again() -> None:
            await scene.ends.finish("id")
            done.set()

        monkeypatch.setattr(BrokerRequests, "end", slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.ends.finish, "id")
            await asked.wait()
            nursery.start_soon(again)
            await trio.testing.wait_all_tasks_blocked()
            assert not done.is_set()
            answered.set()
        assert scene.log.appended == [M]


@pytest.mark.parametrize("is_known", [True, False], ids=["ended", "forgotten"])
async def test_a_member_that_another_kproxy_ended_before_its_turn_is_not_asked_for(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_side, "_ENDS", 1)
    async with decided(two=True) as scene:
        asked = []

        async def by_another(*_: Any, **__: Any) -> None:
            asked.append(1)
            for part in (M, SECOND):
                scene.log.view.apply(TransactionEnded(*part), LogPosition(99, 0))
            if not is_known:
                scene.log.view = IdView("newer")

        monkeypatch.setattr(BrokerRequests, "end", by_another)
        await scene.ends.finish("id")
        assert (asked, scene.log.view.ending) == ([1], {})


async def test_a_member_of_an_id_that_is_forgotten_is_not_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with decided() as scene:

        async def late(*_: Any, **__: Any) -> None:
            scene.log.view = IdView("newer")
            raise TxnError(ErrorCode.PRODUCER_FENCED, "its id was used again")

        monkeypatch.setattr(BrokerRequests, "end", late)
        await scene.ends.finish("id")
        assert scene.stats.torn == 0


async def test_two_that_tell_at_once_tell_once() -> None:
    async with decided() as scene:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(scene.ends.finish, "id")
        assert scene.log.appended == [M]
