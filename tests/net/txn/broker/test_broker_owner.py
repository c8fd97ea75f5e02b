"""What the owner of an id whose transactions the broker decides asks of it: what no other file here is about."""

from typing import Any

import trio

from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call
from tests.net.txn.broker.fenced_client import client_of
from tests.net.txn.broker.native_stage import stage


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
