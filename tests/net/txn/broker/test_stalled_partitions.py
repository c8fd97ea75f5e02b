"""A partition that takes no writes holds up neither an abort nor a new producer, where the broker decides."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Call
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker import fenced_client
from tests.net.txn.broker.native_stage import Client, Kproxy, Stage, stage

#: Above it a writer takes no more.
BUFFER = 65_536
STALLED = 1
LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
KINDS = pytest.mark.parametrize("fenced", [True, False], ids=["broker-fenced", "broker"])


AnyClient: TypeAlias = fenced_client.Client | Client
Work: TypeAlias = Callable[[AnyClient], Awaitable[object]]


async def _silent(call: Call) -> None:
    rows = (row for topic in call.request.topic_data for row in topic.partition_data)
    if any(row.index == STALLED for row in rows):
        await trio.sleep_forever()


async def _client(kproxy: Kproxy, fenced: bool) -> AnyClient:
    client = fenced_client.Client(kproxy, second=True) if fenced else Client(kproxy)
    await client.init()
    return client


@asynccontextmanager
async def waiting(level: int, fenced: bool, *works: Work) -> AsyncIterator[tuple[Stage, AnyClient, Sequence[str]]]:
    """A client with a record in a healthy partition, whose further requests wait; and how those ended."""
    ended: list[str] = []

    async def ask(work: Callable[[], Awaitable[object]]) -> None:
        try:
            result = await work()
        except TxnError as error:
            ended.append(error.error_code.name)
        else:
            ended.append(result.name if isinstance(result, ErrorCode) else "NONE")

    async with stage(level, connection_buffer_bytes=BUFFER) as cast:
        client = await _client(await cast.kproxy(), fenced)
        await client.write("1", 0)
        cast.server.cluster.control(ApiKey.PRODUCE, _silent)
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(ask, partial(work, client))
                await trio.testing.wait_all_tasks_blocked(0.02)
            assert not ended
            yield cast, client, ended
        assert ended == ["TRANSACTION_ABORTABLE"] * len(works)


async def _fill(client: AnyClient) -> object:
    return await client.send("x" * (BUFFER // 2), STALLED)


async def _commit(client: AnyClient) -> object:
    await client.end()
    return None


FILLED = (_fill, _fill, _fill, _fill)
WORKS = pytest.mark.parametrize("works", [FILLED, (_fill, _commit)], ids=["writers wait", "a commit waits"])


@LEVELS
@KINDS
@WORKS
async def test_the_client_can_abort(
    level: int, fenced: bool, works: Sequence[Callable[[AnyClient], Awaitable[object]]]
) -> None:
    async with waiting(level, fenced, *works) as (cast, client, _):
        await client.end(committed=False)
        await client.write("2", 0)
        await client.end()
        assert cast.read() == ["2"]


@LEVELS
@KINDS
@WORKS
async def test_a_new_producer_gets_the_id(
    level: int, fenced: bool, works: Sequence[Callable[[AnyClient], Awaitable[object]]]
) -> None:
    async with waiting(level, fenced, *works) as (cast, client, _):
        new = await _client(client.kproxy, fenced)
        await new.write("2", 0)
        await new.end()
        assert cast.read() == ["2"]
