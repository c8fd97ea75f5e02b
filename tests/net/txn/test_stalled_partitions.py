"""A partition that takes no writes holds up nothing that does not need it: neither time-outs nor aborts nor fencing."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Call, Edit
from kproxy.testing.fake_broker.controls import Fault
from kproxy.txn.txn_error import TxnError
from tests.net.harness import eventually
from tests.net.txn.instances import Cast, Client, Instance, stage

pytestmark = pytest.mark.idle_clock

HEALTHY, STALLED = ("t", 0), ("slow", 0)
VERSIONS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
#: Above it a writer takes no more.
BUFFER = 65_536


async def _silent(call: Call) -> None:
    """The leader of the partition does not answer."""
    if _is_of_stalled(call):
        await trio.sleep_forever()


def _too_few_replicas(call: Call) -> Fault | None:
    return Edit(_refuse) if _is_of_stalled(call) else None


def _refuse(response: object) -> None:
    for topic in response.responses:  # type: ignore[attr-defined]
        for row in topic.partition_responses:
            row.error_code = ErrorCode.NOT_ENOUGH_REPLICAS


def _is_of_stalled(call: Call) -> bool:
    return any(topic.name == STALLED[0] for topic in call.request.topic_data)


STALLS = pytest.mark.parametrize("stall", [_silent, _too_few_replicas], ids=["silent", "NOT_ENOUGH_REPLICAS"])
Stall = Callable[[Call], Fault | Awaitable[None] | None]


@asynccontextmanager
async def stalled(stall: Stall) -> AsyncIterator[tuple[Cast, Instance, "Writing"]]:
    """An instance on a cluster where one partition takes no writes any more, and what a client writes there."""
    async with stage(connection_buffer_bytes=BUFFER) as cast:
        cast.fake.cluster.create_topic(STALLED[0], 1)
        a = await cast.instance()
        cast.fake.cluster.control(ApiKey.PRODUCE, stall)  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            yield cast, a, Writing(a, nursery)
            nursery.cancel_scope.cancel()


class Writing:
    """Requests that wait, and how each ended."""

    def __init__(self, at: Instance, nursery: trio.Nursery) -> None:
        self._at = at
        self._nursery = nursery
        self.ended: list[str] = []

    async def ask(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begins a request, which has to wait."""
        self._nursery.start_soon(self._ask, work)
        await eventually(lambda: self._at.transactions.jobs > 0)
        await trio.sleep(0.05)

    async def _ask(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            rows = await work()
        except TxnError as error:
            self.ended.append(error.error_code.name)
        else:
            self.ended.append(ErrorCode(rows[0].error_code).name if isinstance(rows, list) else "NONE")

    async def all_ended(self, count: int) -> list[str]:
        await eventually(lambda: len(self.ended) >= count)
        return self.ended


async def fill(client: Client, at: Instance, writing: Writing) -> None:
    """Writes to both partitions until the writer takes no more, and more after that."""
    if not client.bumps:
        await client.add(at, HEALTHY, STALLED)
    assert (await client.send(at, [client.batch("1", HEALTHY)]))[0].error_code == 0
    for _ in range(4):
        batch = client.batch("x" * (BUFFER // 2), STALLED)
        await writing.ask(partial(client.send, at, [batch]))


@contextmanager
def overdue(at: Instance) -> Iterator[None]:
    """Within it the open transaction has taken too long: not before, since to begin one may take long, too."""
    owner = at.transactions.coordinator.log.known("id")
    assert owner is not None
    given_ms, owner.keeper.timeout_ms = owner.keeper.timeout_ms, 1
    yield
    owner.keeper.timeout_ms = given_ms


async def decided(at: Instance) -> None:
    """Readers of the healthy partition continue."""
    await eventually(lambda: at.transactions.views.bound(*HEALTHY) is None)


@STALLS
@VERSIONS
class TestWhileWritersWait:
    async def test_the_timeout_holds(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            client = Client("id", bumps)
            await client.init(a)
            await fill(client, a, writing)
            with overdue(a):
                await decided(a)
            assert await writing.all_ended(4) == ["TRANSACTION_ABORTABLE"] * 4
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            await client.end(a, committed=False)
            await client.write(a, "2", HEALTHY)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def test_the_client_can_abort(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            client = Client("id", bumps)
            await client.init(a)
            await fill(client, a, writing)
            await client.end(a, committed=False)
            await decided(a)
            assert await writing.all_ended(4) == ["TRANSACTION_ABORTABLE"] * 4
            await client.write(a, "2", HEALTHY)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def test_a_new_producer_gets_the_id(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            client, new = Client("id", bumps), Client("id", bumps)
            await client.init(a)
            await fill(client, a, writing)
            await new.init(a)
            await decided(a)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await client.end(a)
            await new.write(a, "2", HEALTHY)
            await new.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def test_an_operator_can_abort(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (_, a, writing):
            client = Client("id", bumps)
            await client.init(a)
            await fill(client, a, writing)
            with trio.fail_after(120):
                await a.transactions.coordinator.abort("id", client.producer)
            await decided(a)
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)

    async def test_a_zombie_interrupts_nothing(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (_, a, writing):
            zombie, client = Client("id", bumps), Client("id", bumps)
            await zombie.init(a)
            had = zombie.producer
            await client.init(a)
            await fill(client, a, writing)
            with pytest.raises(TxnError, match="PRODUCER_FENCED"):
                await zombie.end(a, committed=False)
            again = Client("id", bumps, producer=had)
            await writing.ask(partial(again.init, a, resume=True))
            assert "TRANSACTION_ABORTABLE" not in writing.ended
            owner = a.transactions.coordinator.log.known("id")
            assert owner is not None
            assert owner.transaction is not None
            assert owner.transaction.writer.failed is None


@STALLS
@VERSIONS
class TestWhileACommitWaits:
    async def test_the_timeout_holds_and_the_commit_is_answered_as_aborted(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            client = await self._committing(a, writing, bumps)
            with overdue(a):
                await decided(a)
            assert await writing.all_ended(2) == ["TRANSACTION_ABORTABLE"] * 2
            await client.end(a, committed=False)
            await client.write(a, "2", HEALTHY)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def test_the_client_can_abort(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            client = await self._committing(a, writing, bumps)
            await client.end(a, committed=False)
            await decided(a)
            assert await writing.all_ended(2) == ["TRANSACTION_ABORTABLE"] * 2
            await client.write(a, "2", HEALTHY)
            await client.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def test_a_new_producer_gets_the_id(self, bumps: bool, stall: Stall) -> None:
        async with stalled(stall) as (cast, a, writing):
            await self._committing(a, writing, bumps)
            new = Client("id", bumps)
            await new.init(a)
            await decided(a)
            assert await writing.all_ended(2) == ["TRANSACTION_ABORTABLE"] * 2
            await new.write(a, "2", HEALTHY)
            await new.end(a)
            assert cast.visible(a.transactions.views) == ["2"]

    async def _committing(self, a: Instance, writing: Writing, bumps: bool) -> Client:
        client = Client("id", bumps)
        await client.init(a)
        if not bumps:
            await client.add(a, HEALTHY, STALLED)
        assert (await client.send(a, [client.batch("1", HEALTHY)]))[0].error_code == 0
        await writing.ask(partial(client.send, a, [client.batch("1", STALLED)]))
        asking = Client("id", bumps, producer=client.producer)
        await writing.ask(partial(asking.end, a))
        return client


async def test_the_timeout_holds_while_a_leader_is_not_found_for_an_announcement() -> None:
    async def no_answer(call: Call) -> None:
        if any(topic.name == STALLED[0] for topic in call.request.topics):
            await trio.sleep_forever()

    async with stalled(_silent) as (cast, a, writing):
        client = Client("id", bumps=True)
        await client.init(a)
        await client.write(a, "1", HEALTHY)
        cast.fake.cluster.control(ApiKey.LIST_OFFSETS, no_answer)
        await writing.ask(partial(client.send, a, [client.batch("1", STALLED)]))
        with overdue(a):
            await decided(a)
        assert await writing.all_ended(1) == ["TRANSACTION_ABORTABLE"]
        assert TOPIC in cast.fake.cluster.topics
