"""Ids at rest: what is kept of them is small, and they answer as if they had never rested."""

import gc
import tracemalloc

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.txn.ids import Producer
from tests.net.txn.broker.fenced_client import Client, client_of, told
from tests.net.txn.broker.native_stage import Stage, stage
from tests.net.txn.broker.packing import pack_always

pytestmark = pytest.mark.idle_clock

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])
#: The most that an id takes at rest, in bytes, its name included.
MOST_BYTES = 1024
_IDS = 200


async def rest(client: Client) -> None:
    """Until it is packed."""
    owners = client.coordinator.brokers
    await trio.sleep(200)
    assert (list(owners), owners.exists(client.name)) == ([], True)


@LEVELS
@pytest.mark.parametrize("second", [False, True], ids=["first protocol", "second protocol"])
async def test_transactions_continue(level: int, second: bool) -> None:
    async with stage(level) as cast:
        client = await client_of(cast, second=second)
        for value, committed in (("1", True), ("2", False), ("3", True)):
            await rest(client)
            await client.transaction(value, committed=committed)
        await rest(client)
        assert cast.read() == ["1", "3"]
        stats = client.kproxy.stats.transactions
        assert (stats.commits, stats.open, client.coordinator.open, client.coordinator.parties()) == (2, 0, 0, set())


async def test_an_end_that_is_repeated_is_answered_as_it_was() -> None:
    async with stage() as cast:
        client = await client_of(cast, second=True)
        await client.write("1")
        again = client.over(1)
        await client.end()
        await rest(client)
        await again.end()
        assert again.producer == client.producer
        await told(ErrorCode.INVALID_TXN_STATE, Client.end(_as_before(again, client), committed=False))


def _as_before(client: Client, newer: Client) -> Client:
    former = client.over(1)
    former.producer = Producer(newer.producer.producer_id, newer.producer.epoch - 1)
    return former


async def test_clients_that_were_replaced_stay_so() -> None:
    async with stage() as cast:
        former = await client_of(cast)
        newer = former.over(2)
        await newer.init()
        await rest(newer)
        await told(ErrorCode.PRODUCER_FENCED, former.write("1"))
        await rest(newer)
        await newer.transaction("2")
        assert cast.read() == ["2"]


async def test_a_repeated_initialization_is_answered_as_it_was() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        first = client.producer
        await client.init(resumed=first)
        given = client.producer
        await rest(client)
        await client.init(resumed=first)
        assert client.producer == given


async def test_a_batch_of_a_transaction_that_has_ended_is_neither_written_nor_acknowledged() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await client.transaction("1")
        await rest(client)
        await client.add()
        late = await client.produce("1", 0)
        assert late.error_code is not ErrorCode.NONE
        assert await client.send("2") is ErrorCode.NONE
        await client.end()
        assert cast.read() == ["1", "2"]


async def test_a_request_over_an_older_connection_is_late() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await client.over(2).transaction("1")
        await rest(client)
        await told(ErrorCode.NETWORK_EXCEPTION, client.add())


async def test_what_is_open_or_doomed_does_not_rest() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await client.init(timeout_ms=900_000)
        await client.write("1")
        await trio.sleep(300)
        assert len(list(client.coordinator.brokers)) == 1
        await client.end()
        await rest(client)
        assert cast.read() == ["1"]


async def test_an_id_is_forgotten_when_brokers_forget_it() -> None:
    async with stage(transactional_id_timeout_ms=600_000) as cast:
        client = await client_of(cast)
        await rest(client)
        await trio.sleep(500)
        assert not client.coordinator.brokers.exists(client.name)
        await told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, client.write("1"))


async def test_an_id_at_rest_takes_little_memory() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        tracemalloc.start()
        try:
            await _with_ids(cast, client, _IDS)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            owners = client.coordinator.brokers
            assert list(owners) == []
            owners._packed.clear()
            taken = before - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert 200 < taken / _IDS < MOST_BYTES


async def _with_ids(cast: Stage, client: Client, count: int) -> None:
    """So many ids of which each has committed once, and rests."""
    for number in range(count):
        one = Client(client.kproxy, f"id-{number}")
        await one.init()
        await one.transaction("x")
    await trio.sleep(200)


async def test_the_check_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of owners rely on it: nearly each time there is something to pack."""
    counted = pack_always(monkeypatch)
    async with stage() as cast:
        client = await client_of(cast)
        await client.transaction("1")
        await client.transaction("2")
        assert counted[True] >= 2
        assert cast.read() == ["1", "2"]
