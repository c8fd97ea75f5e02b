"""Where one id's requests go: remembered, looked for again, and over connections of its own or shared ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorResponse
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.net.brokers.coordinators import GROUP, TRANSACTION
from kproxy.net.txn.broker.coordinator_connections import CoordinatorConnections
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import Answer, Call, Close, CloseAfter
from tests.net.txn.broker.native_stage import Kproxy, Stage, stage
from tests.net.txn.log_harness import PATIENCE, configured

OWN = pytest.mark.parametrize("own", [True, False], ids=["own", "shared"])
INIT = InitProducerIdRequest("id", 60_000)


@asynccontextmanager
async def coordinators(cast: Stage, *, own: bool) -> AsyncIterator[tuple[Kproxy, CoordinatorConnections]]:
    kproxy = await cast.kproxy()
    config, stats = configured(cast.server.bootstrap), Stats()
    async with trio.open_nursery() as nursery:
        connections = WriterConnections(kproxy.cluster, config, stats, nursery)
        yield kproxy, CoordinatorConnections(kproxy.cluster, connections if own else None)
        connections.close()


async def ask(coordinators: CoordinatorConnections, request: Message = INIT, newest: int = 99) -> Message | None:
    with trio.fail_after(PATIENCE):
        return await coordinators.ask("id", TRANSACTION, request, newest, lambda request, version: None)


@OWN
async def test_who_coordinates_is_asked_once(own: bool) -> None:
    async with stage(brokers=2) as cast, coordinators(cast, own=own) as (_, asked):
        found: list[str] = []
        cast.server.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: found.append(call.request.key))
        for _ in range(3):
            assert isinstance(await ask(asked), InitProducerIdResponse)
        assert found == ["id"]
        asked.forget("id", TRANSACTION)
        assert isinstance(await ask(asked), InitProducerIdResponse)
        assert found == ["id", "id"]


@OWN
async def test_without_an_answer_it_is_counted_and_looked_for_again(own: bool) -> None:
    async with stage() as cast, coordinators(cast, own=own) as (kproxy, asked):
        found: list[str] = []
        cast.server.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: found.append(call.request.key))
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: CloseAfter(), times=1)
        assert await ask(asked) is None
        assert kproxy.stats.upstream_errors == {"errand": 1}
        assert isinstance(await ask(asked), InitProducerIdResponse)
        assert found == ["id", "id"]


async def test_nobody_coordinates() -> None:
    async with stage() as cast, coordinators(cast, own=True) as (_, asked):
        none = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        cast.server.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: Answer(none), times=2)
        assert await asked.features("id", TRANSACTION) == {}
        assert await ask(asked) is None
        assert isinstance(await ask(asked), InitProducerIdResponse)


async def test_versions_are_as_new_as_allowed_and_what_they_can_not_say_is_taken_out() -> None:
    async with stage() as cast, coordinators(cast, own=True) as (_, asked):
        seen: list[int] = []
        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, lambda call: seen.append(call.version))
        trimmed: list[int] = []
        for newest in (3, 99):
            await asked.ask("id", TRANSACTION, INIT, newest, lambda request, version: trimmed.append(version))
        assert seen == trimmed == [3, 5]


async def test_with_connections_of_its_own_an_id_waits_for_no_other() -> None:
    async with stage() as cast, coordinators(cast, own=True) as (_, first), coordinators(cast, own=True) as (_, second):
        held, go = trio.Event(), trio.Event()

        async def hold(_: Call) -> None:
            if not held.is_set():
                held.set()
                await go.wait()

        cast.server.cluster.control(ApiKey.INIT_PRODUCER_ID, hold)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first)
            await held.wait()
            assert isinstance(await ask(second), InitProducerIdResponse)
            go.set()


async def test_features_are_those_that_the_coordinator_tells() -> None:
    async with stage(level=2) as cast, coordinators(cast, own=True) as (kproxy, asked):
        assert (await asked.features("id", TRANSACTION))["transaction.version"] == 2
        cast.server.cluster.control(ApiKey.FIND_COORDINATOR, lambda call: Close())
        assert (await asked.features("id", TRANSACTION))["transaction.version"] == 2, "it is known"
        assert await asked.features("g", GROUP) == {}
        assert kproxy.stats.upstream_errors == {"errand": 1}
