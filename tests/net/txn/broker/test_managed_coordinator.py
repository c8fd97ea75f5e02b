"""The owners by transactional id: who is known, what is refused, and what is forgotten."""

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.broker import broker_owners, managed_coordinator
from kproxy.txn.prepared_parts import Also
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.native_stage import Client, stage
from tests.net.txn.log_harness import PATIENCE


async def test_ids_are_apart() -> None:
    async with stage() as cast:
        kproxy = await cast.kproxy(instance_id="here")
        one, other = Client(kproxy, "one"), Client(kproxy, "other")
        for client, index in ((one, 0), (other, 1)):
            await client.init()
            await client.write(client.name, index)
        assert (kproxy.native.open, kproxy.native.instance_id) == (2, "here")
        assert kproxy.native.keeps_open("one")
        await one.end()
        assert (cast.read(), cast.read(1), kproxy.native.open) == (["one"], [], 1)


async def test_who_has_not_asked_for_the_id_is_unknown() -> None:
    async with stage() as cast:
        client = Client(await cast.kproxy())
        for ask in (client.send("1"), client.offsets("g", 1), client.end()):
            with pytest.raises(TxnError, match="INVALID_PRODUCER_ID_MAPPING"):
                await ask


async def test_what_only_kproxys_log_can_do_is_refused() -> None:
    async with stage() as cast:
        client = await cast.client()
        also = Also(members=("a",))
        with pytest.raises(TxnError, match=r"INVALID_REQUEST.*transactions\.home"):
            await client.kproxy.native.end(client.request, committed=True, bumps=False, also=also)
        with pytest.raises(TxnError, match=r"INVALID_REQUEST.*transactions\.home"):
            await client.kproxy.native.prepare(client.request)


async def test_a_kproxy_that_is_being_stopped_begins_nothing_and_ends_what_is_open() -> None:
    async with stage() as cast:
        client = await cast.client()
        await client.write("1")
        client.kproxy.native.leaving = True
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await Client(client.kproxy, "other").init()
        await client.end()
        assert cast.read() == ["1"]


async def test_an_end_goes_on_without_who_asked_for_it() -> None:
    async with stage() as cast:
        client = await cast.client()
        await client.write("1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.end()
        with trio.fail_after(PATIENCE):
            while client.kproxy.native.open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        assert cast.read() == ["1"]


async def test_ids_that_nobody_uses_are_forgotten_open_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_owners, "_SWEEP_SECONDS", 0.01)
    async with stage() as cast:
        kproxy = await cast.kproxy()
        idle, busy = Client(kproxy, "idle"), Client(kproxy, "busy")
        await busy.init()
        await idle.init()
        await busy.write("1")
        monkeypatch.setattr(managed_coordinator, "_IDLE_SECONDS", -1.0)
        with trio.fail_after(PATIENCE):
            while "idle" in kproxy.native._owners:  # noqa: ASYNC110
                await trio.sleep(0.01)
        with pytest.raises(TxnError) as told:
            await idle.end()
        assert told.value.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await busy.end()
        assert cast.read() == ["1"]
