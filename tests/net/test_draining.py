from typing import Any

import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.draining import Left
from kproxy.net.txn.service import Transactions
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.testing.fake_broker import Delay
from tests.net.harness import errors_of, eventually, metadata, produce, proxied
from tests.net.txn.wire_producer import WireProducer

NOTHING = Left(0, 0, 0, 0)


async def test_idle_connections_end_and_others_after_their_last_answer() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        idle, busy = await proxy.client(), await proxy.client(client_id="busy")
        async with idle, busy:
            assert (await idle.call(metadata("t"), 1)).brokers
            assert errors_of(await busy.call(produce("t", b"a"), 8)) == [0]
            proxy.brokers.control(ApiKey.PRODUCE, lambda _: Delay(before=0.2))
            await busy.send(produce("t", b"b"), 8)
            await eventually(lambda: proxy.server.draining.left().requests == 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(proxy.server.drain)
                assert await idle.ended()
                assert errors_of(await busy.receive()) == [0]
                assert await busy.ended()
            assert proxy.server.draining.left() == NOTHING


async def test_a_producer_in_a_transaction_stays_with_all_its_connections_until_that_is_decided() -> None:
    options: dict[str, Any] = {
        "coordinator": Transactions,
        "transactions_home": (HomeRule("*", Home.KPROXY),),
        "transaction_state_log_num_partitions": 1,
    }
    async with proxied(**options) as proxy:
        proxy.brokers.create_topic("t")
        coordinating, writing, other = [await proxy.client(client_id=name) for name in ("p", "p", "q")]
        async with coordinating, writing, other:
            for client in (other, writing):
                assert (await client.call(metadata("t"), 1)).brokers
            producer = WireProducer(coordinating, "id")
            assert await producer.init() == 0
            assert await producer.add(("t", 0)) == [0]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(proxy.server.drain)
                assert await other.ended()
                await eventually(lambda: proxy.server.draining.left() == Left(2, 0, 1, 0))
                assert await WireProducer(coordinating, "late").init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
                data = WireProducer(writing, "id", producer=producer.producer)
                assert await data.produce("a", ("t", 0)) == [0]
                assert await producer.end() == 0
                assert await coordinating.ended()
                assert await writing.ended()
            assert proxy.server.draining.left() == NOTHING
