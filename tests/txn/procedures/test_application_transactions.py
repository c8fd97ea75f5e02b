"""The transactions of one application: what dooms them, and in which order they begin and end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from kproxy.txn.procedures.application_transactions import ApplicationTransaction, ApplicationTransactions
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from tests.net.harness import PATIENCE
from tests.txn.procedures.managed_scene import managed_by

OUT, IN = 1, 2
"""Connections of the producer and of the consumer."""


class Asked:
    """A coordinator that says what it was asked for, and waits or fails where a test wants it."""

    instance_id = "box"

    def __init__(self, nursery: trio.Nursery, *, offsets_wait: bool = False) -> None:
        self.calls: list[str] = []
        self.held: dict[str, trio.Event] = {}
        self.fails: set[str] = set()
        self._offsets_wait = offsets_wait
        self._nursery = nursery

    def renews_timestamps(self, _: str) -> bool:
        return False

    def offsets_wait(self, _: str) -> bool:
        return self._offsets_wait

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        self._nursery.start_soon(work)

    async def _ask(self, what: str) -> None:
        self.calls.append(what)
        await trio.lowlevel.checkpoint()
        if what in self.held:
            await self.held[what].wait()
        if what in self.fails:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no {what}")

    async def init_producer_id(self, *_: object) -> Producer:
        await self._ask("init")
        return Producer(self.calls.count("init"), 0)

    async def produce(self, request: TxnRequest, *_: object, **__: object) -> list[Any]:
        await self._ask(f"write {request.client.producer_id}")
        return []

    async def commit_offsets(self, *_: object, **__: object) -> None:
        await self._ask("offsets")

    async def end(self, _: TxnRequest, *, committed: bool, **__: object) -> None:
        await self._ask("commit" if committed else "abort")


async def put(turn: ApplicationTransaction, connection: int = OUT) -> None:
    """A request of the producer."""
    turn.took(connection, answered=True)
    try:
        await turn.write(list[ClientBatch](), refused=False, accepted=lambda: None)
    finally:
        turn.done()


async def offsets() -> TransactionOffsets:
    await trio.lowlevel.checkpoint()
    return TransactionOffsets(group_id="g")


@asynccontextmanager
async def application(
    *, offsets_wait: bool = False, begun: bool = True
) -> AsyncIterator[tuple[Asked, ApplicationTransactions]]:
    async with trio.open_nursery() as nursery:
        asked: Any = Asked(nursery, offsets_wait=offsets_wait)
        found = ApplicationTransactions(managed_by(asked), "id", "out", 60_000)
        if begun:
            found.joins(IN, rewinds=True)
            found.fetches()
        with trio.fail_after(PATIENCE):
            yield asked, found
        nursery.cancel_scope.cancel()


class TestOneApplication:
    async def test_a_commit_waits_for_what_came_before_and_what_comes_after_waits_for_it(self) -> None:
        async with application() as (asked, one), trio.open_nursery() as nursery:
            turn = one.current
            await put(turn)
            asked.held = {"write 1": trio.Event(), "commit": trio.Event()}
            nursery.start_soon(put, turn)
            await wait_all_tasks_blocked()
            nursery.start_soon(one.commit, IN, offsets)
            await wait_all_tasks_blocked()
            assert asked.calls == ["init", "write 1", "write 1"]
            asked.held.pop("write 1").set()
            nursery.start_soon(put, one.current)
            await wait_all_tasks_blocked()
            assert asked.calls[3:] == ["offsets", "commit"]
            asked.held["commit"].set()
            await wait_all_tasks_blocked()
            assert asked.calls[5:] == ["write 1"]

    async def test_what_is_doomed_takes_nothing_and_its_commit_is_answered_after_the_abort(self) -> None:
        async with application() as (asked, one):
            turn, answered = one.current, trio.Event()
            await put(turn)
            asked.held = {"abort": trio.Event()}
            turn.failed("a test")
            with pytest.raises(TxnError, match="a test"):
                await put(turn)

            async def commit() -> None:
                with pytest.raises(TxnError, match="a test"):
                    await one.commit(IN, offsets)
                answered.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit)
                await wait_all_tasks_blocked()
                assert not answered.is_set()
                asked.held["abort"].set()
            assert asked.calls[:3] == ["init", "write 1", "abort"]
            assert set(asked.calls[3:]) <= {"abort"}

    async def test_a_doomed_one_is_aborted_after_the_one_before_is_decided(self) -> None:
        """The abort would hit that one: they have one producer."""
        async with application() as (asked, one), trio.open_nursery() as nursery:
            await put(one.current)
            asked.held = {"commit": trio.Event()}
            nursery.start_soon(one.commit, IN, offsets)
            await wait_all_tasks_blocked()
            one.joins(IN, rewinds=True)
            await wait_all_tasks_blocked()
            assert asked.calls[-1] == "commit"
            asked.held["commit"].set()
            await wait_all_tasks_blocked()
            assert set(asked.calls[asked.calls.index("commit") + 1 :]) == {"abort"}
            one.fetches()
            await put(one.current)
            assert asked.calls[-1] == "write 1"
            assert asked.calls.count("init") == 1

    async def test_after_an_abort_that_failed_the_next_one_fences_it(self) -> None:
        async with application() as (asked, one):
            await put(one.current)
            asked.fails = {"abort"}
            one.joins(IN, rewinds=True)
            await wait_all_tasks_blocked()
            one.fetches()
            await put(one.current)
            assert asked.calls == ["init", "write 1", "abort", "init", "write 2"]

    @pytest.mark.parametrize("what", ["offsets", "commit"])
    async def test_a_commit_that_fails_dooms_what_has_come_since(self, what: str) -> None:
        async with application() as (asked, one), trio.open_nursery() as nursery:
            turn = one.current
            await put(turn)
            asked.held, asked.fails = {what: trio.Event()}, {what}
            late: list[ApplicationTransaction] = []

            async def come_late() -> None:
                await wait_all_tasks_blocked()
                late.append(one.current)
                asked.held[what].set()

            nursery.start_soon(come_late)
            with pytest.raises(TxnError, match=f"no {what}"):
                await one.commit(IN, offsets)
            assert turn.doomed is not None
            assert f"no {what}" in turn.doomed
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await put(late[0])
            await put(one.current)
            assert asked.calls[-2:] == ["abort", "write 1"]

    @pytest.mark.parametrize("offsets_wait", [False, True])
    async def test_where_offsets_wait_for_the_open_one_the_next_begins_at_once(self, offsets_wait: bool) -> None:
        async with application(offsets_wait=offsets_wait) as (asked, _):
            await wait_all_tasks_blocked()
            assert asked.calls == ["init"] * offsets_wait

    async def test_offsets_that_are_asked_for_begin_a_transaction_once_and_only_after_a_join(self) -> None:
        async with application(begun=False) as (_, one):
            one.fetches()
            with pytest.raises(TxnError, match="kproxy has begun"):
                await put(one.current)
            one.joins(IN, rewinds=True)
            one.fetches()
            turn = one.current
            await put(turn)
            one.fetches()
            assert one.current is turn
            assert turn.doomed is None

    @pytest.mark.parametrize("written", [False, True])
    @pytest.mark.parametrize(
        ("event", "dooms"),
        [
            (lambda one: one.joins(IN, rewinds=True), {False, True}),
            (lambda one: one.joins(IN, rewinds=False), {True}),
            (lambda one: one.leaves(), {True}),
            (lambda one: one.closed(IN, received_all=True), {True}),
            (lambda one: one.closed(OUT, received_all=False), {True}),
            (lambda one: one.closed(OUT, received_all=True), set()),
            (lambda one: one.closed(7, received_all=False), set()),
        ],
        ids=["joins", "joins and keeps", "leaves", "consumer ends", "producer ends", "ends in order", "another ends"],
    )
    async def test_what_dooms_it(
        self, event: Callable[[ApplicationTransactions], None], dooms: set[bool], written: bool
    ) -> None:
        async with application() as (asked, one):
            if written:
                await put(one.current)
            event(one)
            assert (one.current.doomed is not None) is (written in dooms)
            if written in dooms:
                with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                    await put(one.current)
                assert asked.calls.count("init") == written

    async def test_who_takes_part_and_whether_it_may_be_forgotten(self) -> None:
        async with application(begun=False) as (asked, one), trio.open_nursery() as nursery:
            assert (one.parties(), one.is_idle) == (set(), True)
            one.joins(IN, rewinds=True)
            assert (one.parties(), one.is_idle) == (set(), False)
            one.fetches()
            assert one.parties() == set()
            one.closed(IN, received_all=True)
            assert one.is_idle
            await put(one.current)
            assert (one.parties(), one.is_idle) == ({OUT}, False)
            asked.held = {"commit": trio.Event()}
            nursery.start_soon(one.commit, IN, offsets)
            await wait_all_tasks_blocked()
            assert one.parties() == {OUT, IN}
            one.closed(IN, received_all=True)
            assert (one.parties(), one.is_idle) == ({OUT}, False)
            asked.held["commit"].set()
            await wait_all_tasks_blocked()
            assert (one.parties(), one.is_idle) == (set(), True)
            await put(one.current)
            one.current.failed("a test")
            assert one.parties() == set()
