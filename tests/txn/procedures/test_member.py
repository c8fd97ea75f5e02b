"""One member of a transaction: what it joins, what the log names before it writes, and when it is surely prepared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.transaction_partitions import TransactionPartitions
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_appender import AppendUnknown
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Call, Close
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.log_records import Entry, RecordKind
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.member import Member
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.member_scene import batch, refused
from tests.net.txn.takeover_scene import log_of

pytestmark = pytest.mark.idle_clock

PART = Producer(TXN_BITS | 1000, 0)
P0, P1 = ("t", 0), ("t", 1)


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[Cast, Instance]]:
    """An instance at which an id has an owner."""
    async with stage(**options) as cast:
        a = await cast.instance()
        await Client("id").init(a)
        yield cast, a


def tools_of(at: Instance, **other: Any) -> OwnerTools:
    return replace(at.transactions.coordinator.log._tools, **other)


async def joins(member: Member, tools: OwnerTools) -> bool:
    """Whether it becomes a member of the next transaction."""
    with trio.fail_after(PATIENCE):
        view = await ClaimKeeper("id", tools).read_to_end()
        assert view is not None
        main = view.next_epoch()
        assert main is not None
        return await member.join(view, main)


async def joined(at: Instance, **other: Any) -> Member:
    tools = tools_of(at, **other)
    member = Member("id", "m", PART, tools)
    assert await joins(member, tools)
    return member


async def wrote(member: Member, *places: tuple[str, int], value: str = "1") -> list[int]:
    """The errors of one record to each partition."""
    accepted: list[str] = []
    with trio.fail_after(PATIENCE):
        rows = await member.produce([batch(value, place) for place in places], lambda: accepted.append("now"))
    assert accepted == ["now"]
    return [row.error_code for row in rows]


def announced(cast: Cast) -> list[list[tuple[str, int]]]:
    """The partitions that the log names, record by record."""
    bodies = [entry.body for entry in log_of(cast) if entry.kind is RecordKind.PARTITIONS]
    return [
        [(topic.name, row.index) for topic in body.topics for row in topic.partitions]
        for body in bodies
        if isinstance(body, TransactionPartitions)
    ]


def view_at(at: Instance) -> IdView:
    view = at.transactions.views.of("id")
    assert view is not None
    return view


def is_data(call: Call) -> bool:
    return all(topic.name != TOPIC for topic in call.request.topic_data)


class TestJoining:
    @pytest.mark.parametrize("nonces", [b"ab", b"ba"])
    async def test_two_of_one_producer_id_do_not_both_join(self, nonces: bytes) -> None:
        async with scene() as (_, a):
            first, second = (tools_of(a, nonce=lambda one=bytes([one]) * 16: one) for one in nonces)
            assert await joins(Member("id", "m", PART, first), first)
            assert not await joins(Member("id", "n", PART, second), second)
            assert [one.name for one in view_at(a).members.values()] == ["m"]

    async def test_nobody_joins_an_id_that_the_log_has_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with scene() as (_, a):
            tools = tools_of(a)
            view = view_at(a)
            main = view.next_epoch()
            assert main is not None
            member = Member("id", "m", PART, tools)
            _forget(monkeypatch, tools)
            assert not await member.join(view, main)


def _forget(monkeypatch: pytest.MonkeyPatch, tools: OwnerTools) -> None:
    """From now on the log knows no id."""

    async def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(tools.log, "read_to_end", nothing)


class TestData:
    async def test_the_log_names_each_partition_once_before_it_is_written(self) -> None:
        async with scene() as (cast, a):
            member, named = await joined(a), list[list[list[tuple[str, int]]]]()
            cast.fake.cluster.control(
                ApiKey.PRODUCE, lambda call: named.append(announced(cast)) if is_data(call) else None
            )
            assert await wrote(member, P0) == [0]
            assert await wrote(member, P0) == [0]
            assert await wrote(member, P0, P1) == [0, 0]
            assert named[:3] == [[[P0]], [[P0]], [[P0], [P1]]]

    async def test_a_member_that_has_lost_a_batch_writes_nothing_more(self) -> None:
        async with scene() as (cast, a):
            member = await joined(a)
            assert await wrote(member, P0) == [0]
            cast.fake.cluster.delete_topic("t")
            cast.fake.cluster.create_topic("u", 1)
            assert await wrote(member, P0) != [0]
            assert await wrote(member, ("u", 0)) != [0]
            assert announced(cast) == [[P0]]
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: a batch of the transaction was not written"):
                await member.prepare()

    async def test_a_batch_out_of_order_is_refused_and_the_others_are_written(self) -> None:
        async with scene() as (cast, a):
            member = await joined(a)
            rows: list[list[int]] = []
            for places in ([(P0, 0)], [(P0, 5), (P1, 0)]):
                batches = [batch("1", place)._replace(base_sequence=sequence) for place, sequence in places]
                with trio.fail_after(PATIENCE):
                    rows.append([row.error_code for row in await member.produce(batches, lambda: None)])
            assert rows == [[0], [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]]
            assert (len(cast.batches(*P0)), len(cast.batches(*P1))) == (1, 1)

    async def test_without_the_logs_word_nothing_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with scene() as (cast, a):
            member, tools = await joined(a), tools_of(a)

            async def lose(*_: object) -> None:
                raise AppendUnknown(0, ErrorCode.NETWORK_EXCEPTION)

            monkeypatch.setattr(tools.log, "append_unread", lose)
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE: the log did not take its partitions"):
                await member.produce([batch("1", P0)], lambda: None)
            assert cast.batches(*P0) == []

    async def test_what_finds_no_room_waits(self) -> None:
        async with scene(connection_buffer_bytes=1 << 16) as (cast, a), trio.open_nursery() as nursery:
            member, go = await joined(a), trio.Event()
            accepted: list[int] = []

            async def hold(call: Call) -> None:
                if is_data(call):
                    await go.wait()

            cast.fake.cluster.control(ApiKey.PRODUCE, hold)
            for nth in range(2):
                nursery.start_soon(member.produce, [batch("x" * 50_000, P0)], lambda nth=nth: accepted.append(nth))
                await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.sleep(0.1)
            assert accepted == [0]
            go.set()
            with trio.fail_after(PATIENCE):
                while len(cast.batches(*P0)) < 2:  # noqa: ASYNC110 - the broker tells nobody
                    await trio.sleep(0.01)
            assert accepted == [0, 1]


class TestPreparing:
    async def test_it_waits_for_what_is_in_flight(self) -> None:
        async with scene() as (cast, a), trio.open_nursery() as nursery:
            member, go = await joined(a), trio.Event()

            async def hold(call: Call) -> None:
                if is_data(call):
                    await go.wait()

            cast.fake.cluster.control(ApiKey.PRODUCE, hold)
            nursery.start_soon(wrote, member, P0)
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(member.prepare)
            await trio.sleep(0.1)
            assert PART not in view_at(a).prepared
            go.set()
            with trio.fail_after(PATIENCE):
                while PART not in view_at(a).prepared:  # noqa: ASYNC110 - the view tells nobody
                    await trio.sleep(0.01)
            assert len(cast.batches(*P0)) == 1

    @pytest.mark.parametrize(("lost", "error"), [(2, None), (3, ErrorCode.COORDINATOR_NOT_AVAILABLE)])
    async def test_it_is_tried_again_a_few_times(
        self, monkeypatch: pytest.MonkeyPatch, lost: int, error: ErrorCode | None
    ) -> None:
        async with scene() as (_, a):
            member, log, sequences = await joined(a), tools_of(a).log, list[int]()
            append = log.append

            async def lossy(entry: Entry, producer_id: int, epoch: int, sequence: int) -> None:
                sequences.append(sequence)
                if len(sequences) <= lost:
                    raise AppendUnknown(0, ErrorCode.NETWORK_EXCEPTION)
                await append(entry, producer_id, epoch, sequence)

            monkeypatch.setattr(log, "append", lossy)
            if error is None:
                await member.prepare()
            else:
                assert await refused(member.prepare()) is error
            assert sequences == [1, 1, 1]
            assert (PART in view_at(a).prepared) is (error is None)

    async def test_a_log_that_has_lost_the_id_has_aborted_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with scene() as (_, a):
            member = await joined(a)
            _forget(monkeypatch, tools_of(a))
            assert await refused(member.prepare()) is ErrorCode.TRANSACTION_ABORTABLE


class TestGivingUp:
    @pytest.mark.parametrize("closes", [False, True])
    async def test_what_is_in_flight_is_given_up(self, *, closes: bool) -> None:
        async with scene() as (cast, a), trio.open_nursery() as nursery:
            member, told = await joined(a), list[list[int]]()

            async def work() -> None:
                told.append(await wrote(member, P0))

            cast.fake.cluster.control(ApiKey.PRODUCE, lambda call: Close() if is_data(call) else None)
            nursery.start_soon(work)
            await trio.sleep(0.1)
            assert told == []
            if closes:
                member.close()
            else:
                await member.give_up()
            with trio.fail_after(PATIENCE):
                while not told:  # noqa: ASYNC110 - the response is what is waited for
                    await trio.sleep(0.01)
            assert told != [[0]]

    async def test_its_connections_are_closed(self) -> None:
        async with scene() as (_, a):
            made: list[Any] = []
            tools = tools_of(a)

            def connections() -> Any:
                made.append(tools.connections())
                return made[-1]

            member = await joined(a, connections=connections)
            assert await wrote(member, P0) == [0]
            assert made[0]._clients
            member.close()
            assert made[0]._closed
