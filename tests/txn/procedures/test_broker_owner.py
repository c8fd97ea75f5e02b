"""What the owner of an id whose transactions the broker decides asks of it: what no other file here is about."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.end_txn import EndTxnResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.testing.fake_broker import Answer, Call, Close, Edit
from kproxy.txn.ids import Producer
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.fenced_client import Client, client_of, told
from tests.net.txn.broker.native_stage import TOPIC, Stage, stage
from tests.net.txn.broker.test_managed_owner import refuse
from tests.net.txn.log_harness import PATIENCE

pytestmark = pytest.mark.idle_clock

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
SECOND = pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
FENCED, STATE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


def asked_of(cast: Stage, key: ApiKey) -> list[Any]:
    """The requests of this kind from now on."""
    requests: list[Any] = []
    cast.server.cluster.control(key, lambda call: requests.append(call.request))
    return requests


@asynccontextmanager
async def no_answers(cast: Stage, key: ApiKey) -> AsyncIterator[trio.Event]:
    """Within it no request of this kind is answered; set when one has come."""
    held, go = trio.Event(), trio.Event()

    async def hold(_: Call) -> None:
        held.set()
        await go.wait()

    control = cast.server.cluster.control(key, hold)
    try:
        yield held
    finally:
        cast.server.cluster.controls.remove(control)
        go.set()


async def test_what_is_taken_at_once_is_written_though_no_task_waits_for_it() -> None:
    async with stage() as cast:
        client, held, go = await client_of(cast), trio.Event(), trio.Event()
        batch = client.batch("2", 1)
        assert not client.coordinator.takes_at_once(client.name, [batch])  # nothing has begun
        await client.write("1")

        async def hold(_: Call) -> None:
            held.set()
            await go.wait()

        cast.server.cluster.control(ApiKey.PRODUCE, hold)
        rows: list[Any] = []
        assert client.coordinator.takes_at_once(client.name, [batch])
        client.coordinator.produce_at_once(client.request, [batch], rows.extend, implicit=False)
        await held.wait()
        assert (client.kproxy.jobs.count, rows) == (0, [])
        go.set()
        await client.end()
        assert [row.error_code for row in rows] == [0]
        assert cast.read() == ["1", "2"]


async def test_batches_that_an_abort_gives_up_do_not_doom_the_next_transaction() -> None:
    """Whether their requests are answered before the abort proceeds is chance."""
    async with stage() as cast:
        client = await client_of(cast, second=True)
        for _ in range(5):
            await client.write("1", 0, 1, 2)
            all_held, held = trio.Event(), list[Call]()

            async def hold(call: Call, all_held: trio.Event = all_held, held: list[Call] = held) -> None:
                held.append(call)
                all_held.set()
                await trio.sleep_forever()

            control = cast.server.cluster.control(ApiKey.PRODUCE, hold)
            async with trio.open_nursery() as nursery:
                for index in (0, 1, 2):
                    nursery.start_soon(client.send, "2", index)
                await all_held.wait()
                await client.end(committed=False)
            cast.server.cluster.controls.remove(control)
        await client.write("3")
        await client.end()
        assert cast.read() == ["3"]


async def _fails(work: Awaitable[object]) -> None:
    with pytest.raises(TxnError):
        await work


async def _awaited(work: Awaitable[object]) -> None:
    await work


class TestEpochs:
    @SECOND
    @LEVELS
    async def test_a_transaction_costs_one_request_for_an_epoch_where_ends_give_none(
        self, level: int, second: bool
    ) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=second)
            await client.transaction("1")
            await client.init()
            asked = asked_of(cast, ApiKey.INIT_PRODUCER_ID)
            for count, value in enumerate("234"):
                await client.write(value)
                # for its first the client got one just now; with the second protocol its end asks for the next one
                assert len(asked) == (count if level == 1 else 0)
                await client.end()
            assert cast.read() == ["1", "2", "3", "4"]

    @LEVELS
    async def test_an_end_of_nothing_raises_the_epoch_in_the_second_protocol(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            await client.transaction("1")
            asked = asked_of(cast, ApiKey.INIT_PRODUCER_ID)
            for committed in (True, False):
                before = client.producer
                await client.end(committed=committed)
                assert client.producer > before
            assert len(asked) == 2

    @LEVELS
    async def test_a_client_that_changes_to_the_second_protocol_gets_an_epoch_that_nothing_was_written_under(
        self, level: int
    ) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            for value in "12":
                await client.transaction(value)
            client.second = True
            await client.write("3")
            written = cast.server.cluster.transactional_ids["id"].epoch
            await client.end()
            assert client.producer.epoch > written
            await client.transaction("4")
            assert cast.read() == ["1", "2", "3", "4"]

    async def test_an_end_that_owes_an_epoch_can_only_be_repeated(self) -> None:
        async with stage(1, delivery_timeout_ms=300) as cast:
            client = await client_of(cast, second=True)
            first = client.producer
            await client.transaction("1")
            await client.write("2")
            lost = cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: Close())
            await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.end())
            cast.server.cluster.controls.remove(lost)
            await told(FENCED, replace(client).init(first))
            await told(STATE, client.end(committed=False))
            await client.end()
            assert cast.read() == ["1", "2"]


@LEVELS
class TestRepeatedRequests:
    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    async def test_an_end_that_has_raised_the_epoch_is_answered_again(self, level: int, committed: bool) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            await client.write("1")
            former = client.request
            await client.end(committed=committed)
            await client.write("2")
            end = client.coordinator.end
            assert await end(former, committed=committed, bumps=True) == client.producer
            await told(STATE, end(former, committed=not committed, bumps=True))
            await client.end()
            assert cast.read() == (["1", "2"] if committed else ["2"])

    async def test_a_client_that_asks_again_for_its_next_identity_gets_the_same(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            before = client.producer
            await client.init(before)
            await client.write("1")
            asked = asked_of(cast, ApiKey.INIT_PRODUCER_ID)
            late = Client(client.kproxy)
            await late.init(before)
            assert (late.producer, asked) == (client.producer, [])
            await client.end()
            assert cast.read() == ["1"]


@LEVELS
class TestWhoContinues:
    """KIP-360: an InitProducerId that names an identity."""

    async def test_a_client_without_the_response_to_its_end_may(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            before = client.producer
            await client.transaction("1")
            await client.init(before)
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_an_older_identity_may_not_and_the_newer_one_loses_nothing(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            first = client.producer
            await client.transaction("1")
            second = client.producer
            await client.transaction("2")
            asked = asked_of(cast, ApiKey.INIT_PRODUCER_ID)
            await told(FENCED, Client(client.kproxy).init(first))
            await client.write("3")
            await told(FENCED, Client(client.kproxy).init(second))
            assert (asked, client.kproxy.stats.transactions.fenced) == ([], 2)
            await client.end()
            assert cast.read() == ["1", "2", "3"]

    async def test_one_that_got_its_identity_elsewhere_may(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            elsewhere = replace(client, kproxy=await cast.kproxy())
            await elsewhere.init()
            client.producer = elsewhere.producer
            await client.init(client.producer)
            await client.transaction("2")
            assert cast.read() == ["1", "2"]

    @pytest.mark.parametrize("distance", [-1, 1], ids=["lower", "higher"])
    async def test_of_another_producer_id_the_broker_decides(self, level: int, distance: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            asked = asked_of(cast, ApiKey.INIT_PRODUCER_ID)
            other = Producer(client.producer.producer_id + distance, 0)
            await _fails(Client(client.kproxy).init(other))
            assert [Producer(one.producer_id, one.producer_epoch) for one in asked] == [other]

    @pytest.mark.parametrize("distance", [-1, 5], ids=["lower", "higher"])
    async def test_one_that_may_have_been_replaced_does_not_cut_short_a_commit(self, level: int, distance: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            await client.transaction("0")
            await client.write("1", 1)
            other = client.producer._replace(epoch=client.producer.epoch + distance)
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.PRODUCE) as held:
                nursery.start_soon(client.send, "1")
                await held.wait()
                nursery.start_soon(client.end)
                await trio.testing.wait_all_tasks_blocked(0.02)
                nursery.start_soon(told, FENCED, Client(client.kproxy).init(other))
                await trio.testing.wait_all_tasks_blocked(0.02)
            assert cast.read() == ["0", "1"]

    async def test_its_own_batches_are_given_up_before_the_broker_is_asked(self, level: int) -> None:
        async with stage(level) as cast:
            client, rows = await client_of(cast), list[ErrorCode]()
            await client.write("1", 1)
            await client.add()

            async def send() -> None:
                rows.append(await client.send("1"))

            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.PRODUCE) as held:
                nursery.start_soon(send)
                await held.wait()
                async with trio.open_nursery() as inner, no_answers(cast, ApiKey.END_TXN) as ends:
                    inner.start_soon(client.init, client.producer)
                    await ends.wait()
                    await trio.testing.wait_all_tasks_blocked(0.02)
                    assert rows == [ErrorCode.TRANSACTION_ABORTABLE]
            await client.transaction("2")
            assert cast.read() == ["2"]


class TestWhatWasAdded:
    async def test_the_first_protocol_tells_the_error_of_a_partition_when_it_is_added(self) -> None:
        async with stage(1) as cast:
            client = await client_of(cast)
            await told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, client.add(7))

    @LEVELS
    async def test_nothing_else_is_taken(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await told(STATE, client.offsets("g", 1), client.send("1"))
            await client.add_offsets("g")
            await client.add(1)
            await told(STATE, client.offsets("other", 1), client.send("1"))
            await client.transaction("2")
            assert cast.read() == ["2"]

    @LEVELS
    async def test_offsets_of_a_group_over_two_connections_doom_it(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.add_offsets("g")
            await client.offsets("g", 1)
            newer = client.over(2)
            await told(ErrorCode.TRANSACTION_ABORTABLE, newer.offsets("g", 1, partition=1), newer.end())
            await newer.end(committed=False)
            assert cast.server.cluster.groups["g"].offsets == {}

    @LEVELS
    async def test_offsets_of_the_second_protocol_may_come_over_any_connection(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast, second=True)
            await client.offsets("g", 1)
            await client.over(2).offsets("g", 2, partition=1)
            await client.end()
            assert sorted(cast.server.cluster.groups["g"].offsets) == [(TOPIC, 0), (TOPIC, 1)]

    @pytest.mark.parametrize("distance", [None, -1, 1], ids=["not added", "former epoch", "later epoch"])
    async def test_a_partition_that_may_be_late_is_not_added_for_others(self, distance: int | None) -> None:
        """A request waits whose batches will be refused: its partition stays out of the transaction."""
        async with stage(1) as cast:
            client = await client_of(cast, second=distance is not None)
            await client.transaction("0")
            await client.write("1", 2)
            late = replace(client, producer=client.producer._replace(epoch=client.producer.epoch + (distance or 0)))
            added = asked_of(cast, ApiKey.ADD_PARTITIONS_TO_TXN)

            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.ADD_PARTITIONS_TO_TXN) as held:
                nursery.start_soon(client.write, "1", 0)
                await held.wait()
                nursery.start_soon(_fails, late.send("2", 1))
                await trio.testing.wait_all_tasks_blocked(0.02)
            assert [one.v3_and_below_topics[0].partitions for one in added] == [[0]]
            await client.end()
            assert (cast.read(), cast.read(1)) == (["0", "1"], [])


class TestEnds:
    @LEVELS
    async def test_one_that_the_broker_refuses_may_be_the_other_one_next(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1")
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            answer = Answer(EndTxnResponse(error_code=denied))
            cast.server.cluster.control(ApiKey.END_TXN, lambda call: answer, times=1)
            await told(denied, client.end())
            await client.end(committed=False)
            await client.transaction("2")
            assert cast.read() == ["2"]

    @LEVELS
    async def test_a_late_abort_gives_up_nothing(self, level: int) -> None:
        """It comes over an older connection of the client's."""
        async with stage(level) as cast:
            old = await client_of(cast)
            await old.add()
            client = old.over(2)
            await client.add(1)
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.PRODUCE) as held:
                nursery.start_soon(client.send, "1")
                await held.wait()
                with pytest.raises(TxnError):
                    await old.end(committed=False)
            await client.end()
            assert cast.read() == ["1"]

    async def test_kproxy_as_the_producer_is_never_fenced_for_good(self) -> None:
        async with stage() as cast:
            client = await cast.client()
            await client.write("1")
            await cast.client()
            await _fails(client.offsets("g", 1))
            with suppress(TxnError):
                await client.end()
            await client.write("2")
            await client.end()
            assert cast.read() == ["2"]

    @pytest.mark.parametrize("taken", [True, False], ids=["taken by another", "no answer"])
    async def test_what_kproxy_as_the_producer_gives_up_is_counted_by_its_reason(self, taken: bool) -> None:
        async with stage(delivery_timeout_ms=300) as cast:
            client = await cast.client()
            await client.write("1")
            if taken:
                await cast.client()
            else:
                cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
            await _fails(client.end())
            assert client.kproxy.stats.transactions.aborts == {"fenced" if taken else "failed": 1}

    @LEVELS
    async def test_a_commit_for_which_a_batch_was_not_written_is_not_asked_for(self, level: int) -> None:
        async with stage(level) as cast:
            client = await client_of(cast)
            await client.write("1", 1)
            await client.add()
            held, go = trio.Event(), trio.Event()

            async def refuse_late(_: Call) -> Edit:
                held.set()
                await go.wait()
                return Edit(refuse)

            cast.server.cluster.control(ApiKey.PRODUCE, refuse_late, times=1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send, "1")
                await held.wait()
                nursery.start_soon(told, ErrorCode.TRANSACTION_ABORTABLE, client.end())
                await trio.testing.wait_all_tasks_blocked(0.02)
                go.set()
            await client.end(committed=False)
            assert (cast.read(), cast.read(1)) == ([], [])

    async def test_the_protocol_is_asked_for_again_only_after_a_refusal(self) -> None:
        async with stage() as cast:
            client = await client_of(cast)
            await client.transaction("1")
            await client.add()
            refused = Edit(refuse)
            cast.server.cluster.control(ApiKey.PRODUCE, lambda call: refused, times=1)
            assert await client.send("2") is ErrorCode.RECORD_LIST_TOO_LARGE
            asked = asked_of(cast, ApiKey.API_VERSIONS)
            await client.end(committed=False)
            once = len(asked)
            await client.transaction("3")
            assert (once, len(asked)) == (1, 1)


class TestTheOwner:
    async def test_a_batch_that_need_not_wait_is_written_though_another_client_asks_for_the_id(self) -> None:
        """The broker may refuse that client: then the one that has the id must not have lost anything."""
        async with stage(1) as cast:
            client = await client_of(cast)
            await client.write("1")
            refused = told(ErrorCode.INVALID_TRANSACTION_TIMEOUT, Client(client.kproxy).init(timeout_ms=1 << 30))
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.ADD_PARTITIONS_TO_TXN) as held:
                nursery.start_soon(client.add, 1)
                await held.wait()
                for work in (client.send("2"), refused):
                    nursery.start_soon(_awaited, work)
                    await trio.testing.wait_all_tasks_blocked(0.02)
            await client.end()
            assert cast.read() == ["1", "2"]

    async def test_a_batch_waits_for_room_in_the_buffer_of_the_connection(self) -> None:
        async with stage(connection_buffer_bytes=65_536) as cast:
            client = await client_of(cast, second=True)
            await client.write("1")
            owner = client.coordinator.brokers.known("id")
            assert owner is not None
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.PRODUCE):
                for sequence in range(1, 5):
                    nursery.start_soon(client.produce, "x" * 32_768, sequence)
                    await trio.testing.wait_all_tasks_blocked(0.02)
                assert owner.is_busy
            await client.end()
            assert len(cast.read()) == 5

    async def test_it_takes_nothing_at_once_before_its_client_has_the_id(self) -> None:
        async with stage() as cast:
            client = Client(await cast.kproxy())
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.INIT_PRODUCER_ID) as held:
                nursery.start_soon(client.init)
                await held.wait()
                assert not client.coordinator.takes_at_once("id", [client.batch("1", 0)])

    async def test_a_request_says_when_it_has_its_place(self) -> None:
        async with stage() as cast:
            client = await client_of(cast)
            await client.add()
            owner, placed = client.coordinator.brokers.known("id"), trio.Event()
            assert owner is not None
            async with trio.open_nursery() as nursery, no_answers(cast, ApiKey.PRODUCE):
                batch = client.batch("1", 0)

                async def produce() -> None:
                    await owner.produce(client.request, [batch], implicit=False, accepted=placed.set)

                nursery.start_soon(produce)
                with trio.fail_after(PATIENCE):
                    await placed.wait()

    async def test_what_it_has_open_is_given_up_when_it_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[WriterConnections] = []
        async with stage() as cast:
            client = await client_of(cast)
            await client.write("1")
            owner = client.coordinator.brokers.known("id")
            assert owner is not None
            close = WriterConnections.close

            def note(connections: WriterConnections) -> None:
                closed.append(connections)
                close(connections)

            monkeypatch.setattr(WriterConnections, "close", note)
            owner.close()
            stats = client.kproxy.stats.transactions
            assert (len(closed), stats.open, stats.aborts) == (2, 0, {"failed": 1})
