"""A data topic that is deleted and created again, while a consumer of an old protocol version reads it."""

from contextlib import AsyncExitStack

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from tests.net.harness import PATIENCE, errors_of, produce, proxied
from tests.net.txn.test_reading_whole import OPTIONS, Consumer, transact
from tests.net.txn.wire_producer import WireProducer


@pytest.mark.parametrize("version", [2, 4, 11])
@pytest.mark.parametrize("passed", [1, 2], ids=["the new log ends there", "the new log ends before"])
async def test_what_was_passed_over_in_a_longer_log_is_read_in_the_new_one(version: int, passed: int) -> None:
    async with proxied(**OPTIONS) as proxy, AsyncExitStack() as stack:
        proxy.brokers.create_topic("t")
        clients = [await stack.enter_async_context(await proxy.client(1)) for _ in range(2)]
        producer, reader = WireProducer(clients[0], "ours"), Consumer(clients[1], version, "t", bytes(16))
        assert await producer.init() == 0
        await transact(producer, "t", *["no"] * passed, committed=False)
        await transact(producer, "t", "no", committed=None)
        assert await reader.read() == []
        proxy.brokers.delete_topic("t")
        proxy.brokers.create_topic("t")
        with trio.fail_after(PATIENCE):
            while errors_of(await clients[0].call(produce("t", b"1"), 7)) != [ErrorCode.NONE]:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await reader.read() == ["1"]
