"""The owners of ids whose transactions the broker decides, of either kind of client: who is known, who is forgotten."""

from typing import TypeAlias

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker import broker_owners, owner_policy
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from tests.net.txn.broker import fenced_client, native_stage
from tests.net.txn.broker.fenced_client import Client, client_of, told
from tests.net.txn.broker.native_stage import stage
from tests.net.txn.log_harness import PATIENCE

pytestmark = pytest.mark.idle_clock

UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
Kind: TypeAlias = type[fenced_client.Client] | type[native_stage.Client]
KINDS = pytest.mark.parametrize("kind", [fenced_client.Client, native_stage.Client], ids=["of its own", "managed"])


@KINDS
async def test_ids_are_apart(kind: Kind) -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy()
        one, other = kind(kproxy, "one"), kind(kproxy, "other")
        for client, index in ((one, 0), (other, 1)):
            await client.init()
            await client.write(client.name, index)
        assert kproxy.coordinator.open == 2
        await one.end()
        assert (cast.read(), cast.read(1), kproxy.coordinator.open) == (["one"], [], 1)


async def test_what_has_taken_longer_than_it_may_is_nobodys(autojump_clock: trio.testing.MockClock) -> None:
    """A task that waits for open transactions, such as the end of kproxy, need not wait for it."""
    async with stage() as cast:
        client = await client_of(cast)
        await client.write("1")
        assert (client.coordinator.open, client.coordinator.parties()) == (1, {1})
        await trio.sleep(61)
        assert (client.coordinator.open, client.coordinator.parties()) == (0, set())


@KINDS
async def test_a_client_that_has_not_asked_for_the_id_here_is_unknown(kind: Kind) -> None:
    async with stage() as cast:
        client = kind(await cast.kproxy(), producer=Producer(7, 0))
        await told(UNKNOWN, client.offsets("g", 1), client.send("1"), client.end())
        if isinstance(client, Client):
            await told(UNKNOWN, client.add(), client.add_offsets("g"))


async def test_what_only_kproxys_log_can_do_is_refused() -> None:
    async with stage() as cast:
        client = await cast.client()
        coordinator = client.kproxy.coordinator
        also = DecisionScope(members=("a",))
        end = coordinator.end(client.request, committed=True, bumps=False, also=also)
        await told(ErrorCode.INVALID_REQUEST, end, coordinator.prepare(client.request))


@KINDS
async def test_a_kproxy_that_is_being_stopped_begins_nothing_and_ends_what_is_open(kind: Kind) -> None:
    async with stage() as cast:
        client = kind(await cast.kproxy())
        await client.init()
        await client.write("1")
        client.kproxy.coordinator.brokers.leaving = True
        await told(ErrorCode.COORDINATOR_NOT_AVAILABLE, kind(client.kproxy, "other").init())
        await client.end()
        assert cast.read() == ["1"]


@KINDS
async def test_an_end_continues_without_the_client_that_asked_for_it(kind: Kind) -> None:
    async with stage() as cast:
        client = kind(await cast.kproxy())
        await client.init()
        await client.write("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.end()
        with trio.fail_after(PATIENCE):
            while client.kproxy.coordinator.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        assert cast.read() == ["1"]


@KINDS
async def test_ids_that_nobody_uses_are_forgotten_open_ones_are_not(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_owners, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(native_stage, "MANAGED", owner_policy.MANAGED._replace(idle_s=0.3))
    async with stage(transactional_id_timeout_ms=300) as cast:
        kproxy = await cast.kproxy()
        idle, busy = kind(kproxy, "idle"), kind(kproxy, "busy")
        await busy.init()
        await busy.write("1")
        await idle.init()
        await idle.end()
        with trio.fail_after(PATIENCE):
            while len(list(kproxy.coordinator.brokers)) > 1:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.01)
        await told(UNKNOWN, idle.end())
        await busy.end()
        assert cast.read() == ["1"]


async def test_what_was_left_open_for_too_long_is_not_counted_as_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_owners, "_SWEEP_SECONDS", 0.01)
    async with stage(transactional_id_timeout_ms=1_000) as cast:
        client = Client(await cast.kproxy())
        await client.init(timeout_ms=1_000)
        await client.write("1")
        assert client.kproxy.stats.transactions.open == 1
        with trio.fail_after(PATIENCE):
            while client.kproxy.stats.transactions.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.01)
        await told(UNKNOWN, client.end())
        assert cast.read() == []
