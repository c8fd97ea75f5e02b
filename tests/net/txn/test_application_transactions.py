"""An application that knows nothing of transactions, in frames through kproxy: OffsetCommits end its transactions."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kproxy.codec._generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproxy.codec._generated.leave_group import LeaveGroupRequest
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.application_transactions import ApplicationsByRule, ApplicationTransaction, ApplicationTransactions
from kproxy.net.txn.service import Transactions
from kproxy.proxy.applications import CommitRule
from kproxy.txn.ids import Producer
from kproxy.txn.requests import ClientBatch, TxnRequest
from kproxy.txn.txn_error import TxnError
from tests.net.harness import PATIENCE, FrameClient, Proxied, errors_of, eventually, produce, proxied
from tests.net.retrying import Gate
from tests.net.txn.test_rpcs_whole import committed_values

OPTIONS: dict[str, Any] = {"coordinator": Transactions, "transaction_state_log_num_partitions": 4, "instance_id": "box"}
RULES = (CommitRule("out-*", group="g-*"), CommitRule("loud", consumer="quiet"), CommitRule("same-*"))
NAMES = [("out-1", "any", "g-1"), ("loud", "quiet", "h"), ("same-1", "same-1", "h")]
REWIND = ErrorCode.ILLEGAL_GENERATION


@asynccontextmanager
async def stage() -> AsyncIterator[Proxied]:
    async with proxied(**OPTIONS, on_offset_commit=RULES) as proxy:
        proxy.brokers.create_topic("t", 2)
        proxy.brokers.create_topic("in", 1)
        yield proxy


async def write(client: FrameClient, *values: bytes, partition: int = 0) -> list[int]:
    return errors_of(await client.call(produce("t", *values, partition=partition), 7))


async def commit(client: FrameClient, offset: int, *, group: str = "g-1", version: int = 2) -> int:
    """OffsetCommit of one partition; its error code."""
    topics = [OffsetCommitRequestTopic("in", partitions=[OffsetCommitRequestPartition(0, offset)])]
    answer = await client.call(OffsetCommitRequest(group_id=group, topics=topics), version)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(client: FrameClient, group: str = "g-1") -> int:
    """OffsetFetch of one partition; the offset."""
    answer = await client.call(OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic("in", [0])]), 1)
    return int(answer.topics[0].partitions[0].committed_offset)


async def join(client: FrameClient, group: str = "g-1", protocol: str = "range") -> None:
    """A consumer without a member id joins and, as it is the first, leads."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(protocol, b"")],
    )
    await client.call(request, 0)


async def rewind(client: FrameClient) -> None:
    """What the first refused commit of a consumer makes it do."""
    assert await commit(client, 0) == REWIND


@pytest.mark.parametrize(("producer", "consumer", "group"), NAMES)
@pytest.mark.parametrize("version", [0, 1, 2, 8])
async def test_what_is_written_between_two_commits_shows_with_the_second(
    producer: str, consumer: str, group: str, version: int
) -> None:
    async with (
        stage() as proxy,
        await proxy.client(client_id=producer) as out,
        await proxy.client(client_id=consumer) as reader,
    ):
        assert await commit(reader, 0, group=group) == REWIND
        for at in (1, 2):
            assert await write(out, b"%d" % at) == [0]
            assert await write(out, b"%d" % at, partition=1) == [0]
            assert len(committed_values(proxy)) == at - 1
            assert await commit(reader, at, group=group, version=version) == 0
            assert committed_values(proxy) == committed_values(proxy, 1) == [str(one) for one in range(1, at + 1)]
            assert await fetched(reader, group) == at


async def test_other_clients_write_and_commit_as_ever() -> None:
    async with stage() as proxy, await proxy.client(client_id="other") as client:
        assert await write(client, b"plain") == [0]
        assert await commit(client, 7, group="other") == 0
        assert await fetched(client, "other") == 7


async def test_until_the_consumer_is_known_to_have_begun_at_its_offsets_nothing_is_committed() -> None:
    """A kproxy that has just begun can't know what its former self had aborted."""
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        assert await write(out, b"1") == [ErrorCode.INVALID_TXN_STATE]
        assert await commit(reader, 1) == REWIND
        assert await fetched(reader) == -1
        assert await write(out, b"2") == [0]
        assert await commit(reader, 2) == 0
        assert committed_values(proxy) == ["2"]


async def test_a_consumer_that_joins_and_asks_for_its_offsets_has_begun() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await join(reader)
        await fetched(reader)
        assert await write(out, b"1") == [0]
        assert committed_values(proxy) == []


async def test_a_rebalance_aborts_what_is_open_and_what_comes_late() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await join(reader)
        assert await write(out, b"late") == [ErrorCode.INVALID_TXN_STATE]
        assert await fetched(reader) == -1
        assert await write(out, b"again") == [0]
        assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["again"]


async def test_a_consumer_that_keeps_its_partitions_is_told_to_rewind() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await join(reader, protocol="cooperative-sticky")
        await fetched(reader)
        assert await commit(reader, 1) == REWIND
        assert committed_values(proxy) == []


async def test_a_consumer_that_leaves_takes_what_is_open_with_it() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        await reader.call(LeaveGroupRequest(group_id="g-1", member_id="m"), 0)
        assert await commit(reader, 1) == REWIND
        assert committed_values(proxy) == []


async def test_a_consumers_connection_that_ends_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out:
        async with await proxy.client() as reader:
            await rewind(reader)
            assert await write(out, b"lost") == [0]
        await eventually(lambda: proxy.stats.clients.connections_open == 1)
        async with await proxy.client() as reader:
            assert await commit(reader, 1) == REWIND
            assert await write(out, b"again") == [0]
            assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["again"]


async def test_a_producers_connection_that_ends_before_its_answer_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client() as reader:
        await rewind(reader)
        gate = Gate(proxy)
        async with await proxy.client(client_id="out-1") as out:
            await out.send(produce("t", b"1"), 7)
            await gate.wait_reached()
        await eventually(lambda: proxy.stats.clients.connections_open == 1)
        gate.release()
        async with await proxy.client(client_id="out-1") as out:
            assert await write(out, b"1") == [ErrorCode.INVALID_TXN_STATE]
            assert await commit(reader, 1) == REWIND
            assert await write(out, b"1") == [0]
            assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["1"]


async def test_a_refused_batch_aborts_what_is_open() -> None:
    async with stage() as proxy, await proxy.client(client_id="out-1") as out, await proxy.client() as reader:
        await rewind(reader)
        assert await write(out, b"lost") == [0]
        broken = produce("t", b"2")
        broken.topic_data[0].partition_data[0].records = b"nonsense"
        assert errors_of(await out.call(broken, 7)) == [ErrorCode.INVALID_RECORD]
        assert await commit(reader, 1) == REWIND
        assert await fetched(reader) == -1
        assert await write(out, b"3") == [0]
        assert await commit(reader, 1) == 0
        assert committed_values(proxy) == ["3"]


async def test_commits_that_are_sent_without_a_wait_are_decided_in_order() -> None:
    async with stage() as proxy, await proxy.client(client_id="same-1") as client:
        assert await commit(client, 0, group="h") == REWIND
        for at in range(1, 6):
            await client.send(produce("t", b"%d" % at), 7)
            topics = [OffsetCommitRequestTopic("in", partitions=[OffsetCommitRequestPartition(0, at)])]
            await client.send(OffsetCommitRequest(group_id="h", topics=topics), 2)
        for _ in range(5):
            assert errors_of(await client.receive()) == [0]
            assert (await client.receive()).topics[0].partitions[0].error_code == 0
        assert await fetched(client, "h") == 5
        assert committed_values(proxy) == ["1", "2", "3", "4", "5"]


async def test_applications_that_do_nothing_are_forgotten_when_there_are_many() -> None:
    async with stage() as proxy, await proxy.client(client_id="same-1") as client:
        implicit_transactions = proxy.transactions.implicit_transactions
        assert await commit(client, 0, group="h") == REWIND
        kept = implicit_transactions.of_consumer("same-1", "h")
        for at in range(2_500):
            assert implicit_transactions.of(f"same-x{at}") is not None
        assert implicit_transactions.of_consumer("same-1", "h") is kept
        assert await write(client, b"1") == [0]
        assert await commit(client, 1, group="h") == 0
        assert len(implicit_transactions._applications._applications) <= 1_000


async def test_each_request_is_a_transaction() -> None:
    async with proxied(**OPTIONS, per_request=("one-*",)) as proxy, await proxy.client(client_id="one-1") as client:
        proxy.brokers.create_topic("t", 2)
        both = produce("t", b"1")
        both.topic_data[0].partition_data += produce("t", b"1", partition=1).topic_data[0].partition_data
        assert errors_of(await client.call(both, 7)) == [0, 0]
        assert committed_values(proxy) == committed_values(proxy, 1) == ["1"]
        both.topic_data[0].partition_data[1].records = b"nonsense"
        errors = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_RECORD]
        assert errors_of(await client.call(both, 7)) == errors
        assert await write(client, b"2") == [0]
        assert committed_values(proxy) == ["1", "2"]


async def test_a_partition_that_can_not_be_written_takes_the_request_with_it() -> None:
    async with proxied(**OPTIONS, per_request=("one-*",)) as proxy, await proxy.client(client_id="one-1") as client:
        proxy.brokers.create_topic("t", 2)
        both = produce("t", b"1")
        both.topic_data[0].partition_data += produce("t", b"1", partition=9).topic_data[0].partition_data
        assert all(errors_of(await client.call(both, 7)))
        for at in range(5):
            await client.send(produce("t", b"%d" % at), 7)
        for _ in range(5):
            assert errors_of(await client.receive()) == [0]
        assert committed_values(proxy) == ["0", "1", "2", "3", "4"]


OUT, IN = 1, 2
"""Connections of the producer and of the consumer."""


class Asked:
    """A coordinator that says what it was asked for, and waits or fails where a test wants it."""

    instance_id = "box"

    def __init__(self, nursery: trio.Nursery, *, at_broker: bool = False) -> None:
        self.calls: list[str] = []
        self.held: dict[str, trio.Event] = {}
        self.fails: set[str] = set()
        self._at_broker = at_broker
        self._nursery = nursery

    def renews_timestamps(self, _: str) -> bool:
        return False

    def is_at_broker(self, _: str) -> bool:
        return self._at_broker

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
    *, at_broker: bool = False, begun: bool = True
) -> AsyncIterator[tuple[Asked, ApplicationTransactions]]:
    async with trio.open_nursery() as nursery:
        asked: Any = Asked(nursery, at_broker=at_broker)
        found = ApplicationTransactions(asked, "id", "out", 60_000)
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

    @pytest.mark.parametrize("at_broker", [False, True])
    async def test_at_the_broker_the_next_one_begins_at_once(self, at_broker: bool) -> None:
        async with application(at_broker=at_broker) as (asked, _):
            await wait_all_tasks_blocked()
            assert asked.calls == ["init"] * at_broker

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

    async def test_one_that_does_nothing_is_kept_while_there_are_few(self) -> None:
        async with application() as (asked, _):
            coordinator: Any = asked
            by_rule = ApplicationsByRule(coordinator, RULES, 60_000)
            first = by_rule.of_producer("same-1")
            assert by_rule.of_producer("same-2") is not first
            assert by_rule.of_producer("same-1") is first
