"""What differs between clients of KIP-98 and those for which kproxy is the producer."""

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Close
from tests.net.txn.broker import fenced_client, native_stage
from tests.net.txn.broker.fenced_client import client_of, told
from tests.net.txn.broker.native_stage import Stage, stage

pytestmark = pytest.mark.idle_clock


async def end_unanswered(cast: Stage, client: fenced_client.Client | native_stage.Client) -> None:
    await client.write("1")
    lost = cast.server.cluster.control(ApiKey.END_TXN, lambda call: Close())
    await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, client.end())
    cast.server.cluster.controls.remove(lost)


class TestAClient:
    async def test_it_does_not_take_its_id_back_from_a_newer_one(self) -> None:
        async with stage(1) as cast:
            client = await client_of(cast)
            await client.transaction("1")
            newer = await client_of(cast)
            await told(ErrorCode.PRODUCER_FENCED, client.add())
            await newer.transaction("2")
            assert cast.read() == ["1", "2"]

    async def test_it_asks_for_an_end_until_that_is_certain(self) -> None:
        async with stage(delivery_timeout_ms=300) as cast:
            client = await client_of(cast)
            await end_unanswered(cast, client)
            await told(ErrorCode.CONCURRENT_TRANSACTIONS, client.add())
            await client.end()
            assert cast.read() == ["1"]


class TestKproxyForAClient:
    async def test_it_takes_the_id_back(self) -> None:
        async with stage(1) as cast:
            client = await cast.client()
            await client.write("1")
            await client.end()
            await cast.client()
            await client.write("2")
            await client.end()
            assert cast.read() == ["1", "2"]

    async def test_an_end_that_is_not_certain_is_left_to_the_next_transaction(self) -> None:
        async with stage(delivery_timeout_ms=300) as cast:
            client = await cast.client()
            await end_unanswered(cast, client)
            await client.write("2")
            await client.end()
            assert cast.read() == ["2"]

    async def test_an_id_that_it_does_not_use_is_forgotten_after_an_hour(self) -> None:
        async with stage() as cast:
            kproxy = await cast.kproxy()
            await native_stage.Client(kproxy, "kproxy's").init()
            await fenced_client.Client(kproxy, "a client's").init()
            owners = kproxy.coordinator.brokers
            await trio.sleep(3_500)
            assert owners.exists("kproxy's")
            await trio.sleep(200)
            assert not owners.exists("kproxy's")
            assert owners.exists("a client's")
