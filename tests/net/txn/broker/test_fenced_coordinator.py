"""The owners by transactional id of KIP-98's clients: who is known, what is refused, and what is forgotten."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker import broker_owners
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.txn.ids import Producer
from tests.net.txn.broker.fenced_client import Client, client_of, told
from tests.net.txn.broker.native_stage import TOPIC, stage
from tests.net.txn.log_harness import PATIENCE

UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_ids_are_apart() -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        one, other = Client(kproxy, "one", connection=1), Client(kproxy, "other", connection=2)
        for client, index in ((one, 0), (other, 1)):
            await client.init()
            await client.write(client.name, index)
        assert (kproxy.fenced.open, kproxy.fenced.parties()) == (2, {1, 2})
        await one.end()
        assert (cast.read(), cast.read(1)) == (["one"], [])
        assert (kproxy.fenced.open, kproxy.fenced.parties()) == (1, {2})


async def test_the_parties_are_the_connections_of_what_is_open() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        parties = client.fenced.parties
        await client.write("1")
        assert await client.over(7).send("2") is ErrorCode.NONE
        assert parties() == {1, 7}
        await client.end()
        assert parties() == set()
        await client.add()
        assert parties() == {1}


async def test_what_has_taken_longer_than_it_may_is_nobodys(autojump_clock: trio.testing.MockClock) -> None:
    """Whoever waits for open transactions, such as a kproxy that is to end, need not wait for it."""
    async with stage() as cast:
        client = await client_of(cast)
        await client.write("1")
        assert (client.fenced.open, client.fenced.parties()) == (1, {1})
        await trio.sleep(61)
        assert (client.fenced.open, client.fenced.parties()) == (0, set())


async def test_who_has_not_asked_for_the_id_here_is_unknown() -> None:
    async with stage() as cast:
        client = Client(await cast.kproxy(), producer=Producer(7, 0))
        asks = (client.add(), client.add_offsets("g"), client.offsets("g", 1), client.send("1"), client.end())
        await told(UNKNOWN, *asks)


async def test_an_empty_id_and_kproxys_own_topics_are_refused() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await told(ErrorCode.INVALID_REQUEST, Client(client.kproxy, "").init())
        refused = await client.fenced.add_partitions(client.request, [(TOPIC, 0), (LOG, 3)])
        assert refused == {(LOG, 3): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert client.fenced.open == 0


async def test_a_kproxy_that_is_being_stopped_begins_nothing_and_ends_what_is_open() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await client.write("1")
        client.fenced.leaving = True
        await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, Client(client.kproxy, "other").init())
        await client.end()
        assert cast.read() == ["1"]


async def test_an_end_goes_on_without_who_asked_for_it() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        await client.write("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.end()
        with trio.fail_after(PATIENCE):
            while client.fenced.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        await client.end()
        assert cast.read() == ["1"]


async def test_ids_that_nobody_uses_are_forgotten_as_brokers_forget_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_owners, "_SWEEP_SECONDS", 0.01)
    async with stage(transactional_id_timeout_ms=300) as cast:
        kproxy = await cast.kproxy()
        idle, busy = Client(kproxy, "idle"), Client(kproxy, "busy")
        await busy.init()
        await busy.write("1")
        await idle.init()
        await idle.end()
        with trio.fail_after(PATIENCE):
            while "idle" in kproxy.fenced._owners:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.01)
        await told(UNKNOWN, idle.end())
        await busy.end()
        assert cast.read() == ["1"]


async def test_what_was_left_open_for_too_long_is_not_counted_as_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_owners, "_SWEEP_SECONDS", 0.01)
    async with stage(transactional_id_timeout_ms=50) as cast:
        client = Client(await cast.kproxy())
        await client.init(timeout_ms=50)
        await client.write("1")
        assert client.kproxy.stats.transactions.open == 1
        with trio.fail_after(PATIENCE):
            while client.kproxy.stats.transactions.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.01)
        await told(UNKNOWN, client.end())
        assert cast.read() == []
