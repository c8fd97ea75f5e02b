"""The ids of an instance: which it takes over, forgets, gives up, and whose transactions it aborts for others."""

from collections.abc import Awaitable
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.log_appender import AppendError
from kproxy.net.txn.log_topic import TOPIC
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures import log_owners
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import TIMEOUT_MS, Client, Instance, stage

P0 = ("t", 0)


@pytest.mark.idle_clock
async def test_an_id_is_taken_over_after_a_transactions_time_and_ten_seconds_without_a_record() -> None:
    """The other kproxy may be alive for that long, and still decide."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a, TIMEOUT_MS)
        await client.write(a, "1", P0)
        await client.end(a)
        await a.kill()
        for wait_s in (0, TIMEOUT_MS / 1000 + 9):
            await trio.sleep(wait_s)
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await client.add(b, P0)
        await trio.sleep(2)
        await client.write(b, "2", P0)
        await client.end(b)
        assert cast.visible(b.transactions.views) == ["1", "2"]


async def moved(client: Client, to: Instance) -> None:
    """The client asks there for long enough."""
    while await error_of(client.add(to, P0)) is ErrorCode.NOT_COORDINATOR:  # noqa: ASYNC110 - a client that retries
        await trio.sleep(0.5)


@pytest.mark.idle_clock
async def test_an_instance_that_had_an_id_before_leaves_a_decision_in_flight_ten_seconds_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        await client.end(a)
        await moved(client, b)
        await client.write(b, "2", P0)
        assert (owner := a.transactions.coordinator.log.known("id")) is not None
        assert not owner.is_open
        await trio.sleep(TIMEOUT_MS / 1000 - 2)
        asked, passes = held(b, monkeypatch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.end, b)
            await asked.wait()
            await trio.sleep(9)
            passes.set()
        assert cast.visible(b.transactions.views) == ["1", "2"]


async def test_an_id_that_nobody_has_claimed_has_no_owner() -> None:
    async with stage() as cast:
        a = await cast.instance()
        with pytest.raises(TxnError, match="INVALID_PRODUCER_ID_MAPPING"):
            await Client("id", producer=Producer(1, 0)).add(a, P0)


def held(at: Instance, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> tuple[trio.Event, trio.Event]:
    """Set when this instance appends its next claim; and what lets its claims pass, or fail."""
    append, asked, passes = at.transactions.log.append, trio.Event(), trio.Event()

    async def wait(*args: Any) -> Any:
        asked.set()
        await passes.wait()
        if fails:
            raise AppendError("the log takes nothing", ErrorCode.REQUEST_TIMED_OUT)
        return await append(*args)

    monkeypatch.setattr(at.transactions.log, "append", wait)
    return asked, passes


async def error_of(ask: Awaitable[object]) -> ErrorCode | None:
    try:
        await ask
    except TxnError as error:
        return error.error_code
    return None


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced before", "replaced by this request"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
async def test_a_client_is_fenced_by_the_first_producer_of_a_restarted_kproxy(
    bumps: bool, committed: bool, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's coordinator compares producer ids first: INVALID_PRODUCER_ID_MAPPING only where they differ.

    Java's producer ends for good at PRODUCER_FENCED. INVALID_PRODUCER_ID_MAPPING it takes for an id that the broker has
    forgotten: its application aborts, sends nothing but InitProducerId, and begins again.
    """
    async with stage() as cast:
        a, client, newer = await cast.instance("a"), Client("id", bumps), Client("id", bumps)
        await client.init(a)
        await client.write(a, "1", P0)
        if is_replaced:
            await Client("id", bumps).init(a)
        await a.kill()
        again = await cast.instance("a")
        asked, passes = held(again, monkeypatch)
        told = list[ErrorCode | None]()

        async def end() -> None:
            told.append(await error_of(client.end(again, committed=committed)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(newer.init, again)
            await asked.wait()
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked()
            passes.set()
        assert told == [ErrorCode.PRODUCER_FENCED]
        await newer.write(again, "2", P0)
        await newer.end(again)
        assert cast.visible(again.transactions.views) == ["2"]


@pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["InitProducerId", "decision"])
async def test_a_client_continues_at_a_restarted_kproxy_that_has_refused_a_replaced_one(
    bumps: bool, by_hand: bool
) -> None:
    async with stage() as cast:
        a, old, client = await cast.instance("a"), Client("id", bumps), Client("id", bumps)
        await old.init(a)
        await client.init(a)
        await client.write(a, "1", P0)
        await a.kill()
        again = await cast.instance("a")
        log = again.transactions.coordinator.log
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            if by_hand:
                await log.decide("id", old.producer, committed=False, also=DecisionScope(every=True))
            else:
                await old.init(again, resume=True)
        await client.write(again, "2", P0)
        await client.end(again)
        assert cast.visible(again.transactions.views) == ["1", "2"]


async def test_what_waited_for_an_init_producer_id_that_failed_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has read the log for its client yet."""
    async with stage() as cast:
        a, client = await cast.instance("a"), Client("id")
        await client.init(a)
        await client.write(a, "1", P0)
        await a.kill()
        again = await cast.instance("a")
        errors = list[ErrorCode | None]()

        async def ask(what: Awaitable[object]) -> None:
            errors.append(await error_of(what))

        with monkeypatch.context() as patch:
            asked, passes = held(again, patch, fails=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, Client("id").init(again))
                await asked.wait()
                for late in (client.add(again, P0), client.end(again, committed=False), client.end(again)):
                    nursery.start_soon(ask, late)
                await trio.testing.wait_all_tasks_blocked()
                passes.set()
        assert errors == [ErrorCode.CONCURRENT_TRANSACTIONS] * 4
        await client.write(again, "2", P0)
        await client.end(again)
        assert cast.visible(again.transactions.views) == ["1", "2"]


@pytest.mark.idle_clock
async def test_an_owner_of_which_nothing_is_asked_is_forgotten_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_owners, "_IDLE_SECONDS", 10)
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        owners = a.transactions.coordinator.log
        await client.init(a)
        await trio.sleep(6)
        await client.init(a)
        await trio.sleep(6)
        assert owners.known("id") is not None
        await client.write(a, "1", P0)
        await trio.sleep(15)
        assert owners.known("id") is not None, "its transaction is open"
        await client.end(a)
        await trio.sleep(6)
        assert owners.known("id") is not None
        await trio.sleep(6)
        assert owners.known("id") is None
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["1", "2"]


@pytest.mark.idle_clock
async def test_a_transaction_is_aborted_after_its_time_out_and_not_before() -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a, 10_000)
        await client.write(a, "1", P0)
        await trio.sleep(8)
        await client.write(a, "2", P0)
        await trio.sleep(4)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.write(a, "3", P0)


@pytest.mark.idle_clock
async def test_ids_that_are_not_used_are_given_up_once_and_not_all_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_owners, "_MOST_EXPIRED", 1)
    monkeypatch.setattr(log_owners, "_ALL_SECONDS", 0.0)
    monkeypatch.setattr(log_owners, "_EXPIRY_TURNS_MS", 0)
    async with stage(transactional_id_timeout_ms=1) as cast:
        a, prepared = await cast.instance("a"), Client("prepared")
        for client in (unused := Client("unused"), another := Client("another"), prepared):
            await client.init(a)
            await client.write(a, "1", P0)
        await unused.end(a)
        await another.end(a)
        await a.transactions.coordinator.prepare(prepared.request)
        await trio.sleep(3)
        views = a.transactions.views
        assert not any(view.expired for view in views.all()), "they have an owner here"
        await a.kill()
        b = await cast.instance("b")
        counts = set[int]()
        for _ in range(10):
            await trio.sleep(0.5)
            counts.add(sum(view.expired for view in b.transactions.views.all()))
        assert {1, 2} <= counts
        records = [len(cast.batches(TOPIC, index)) for index in range(4)]
        await trio.sleep(3)
        assert {view.transactional_id: view.expired for view in b.transactions.views.all()} == {
            "unused": True,
            "another": True,
            "prepared": False,
        }
        assert records == [len(cast.batches(TOPIC, index)) for index in range(4)]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("named", [-1, 0, 1])
async def test_an_operator_aborts_the_open_transaction_of_the_producer_that_is_named(
    elsewhere: bool, named: int
) -> None:
    """A newer producer, or an older one, is another one."""
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        by = (b if elsewhere else a).transactions.coordinator.log
        await by.abort("id", Producer(1, 0))  # nobody has it yet
        await client.init(a)
        await client.init(a)
        await by.abort("id", client.producer)
        assert a.stats.transactions.claims == {"won": 2}, "nothing is open"
        assert b.stats.transactions.claims == {}
        await client.write(a, "1", P0)
        await by.abort("id", client.producer._replace(epoch=client.producer.epoch + named))
        await a.transactions.log.read_to_end("id")
        if named:
            await client.write(a, "2", P0)
            await client.end(a)
        else:
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.end(a)
            await client.end(a, committed=False)
        assert cast.visible(a.transactions.views) == (["1", "2"] if named else [])


async def test_an_operator_may_ask_the_instance_that_had_the_id_before() -> None:
    async with stage() as cast:
        a, b, client = await cast.instance("a"), await cast.instance("b"), Client("id")
        await Client("id").init(a)
        await client.init(b)
        await client.write(b, "1", P0)
        await a.transactions.coordinator.abort("id", client.producer)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(b)


async def test_a_restarted_kproxy_aborts_what_nobody_can_continue_and_nothing_of_others() -> None:
    async with stage() as cast:
        names = ("a", "b", "c")
        instances = {name: await cast.instance(name) for name in names}
        for name in names:
            await (client := Client(name, bumps=True, connection=0)).init(instances[name])
            await client.write(instances[name], "1", P0)
        await instances["b"].kill()
        views = (await cast.instance("b")).transactions.views
        with trio.fail_after(120):
            while (left := [name for name in names if (view := views.of(name)) and view.ongoing]) == list(names):  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        assert left == ["a", "c"]


@pytest.mark.idle_clock
async def test_the_metrics_tell_what_is_open_and_since_when() -> None:
    async with stage() as cast:
        a, old, new, prepared = await cast.instance(), Client("old"), Client("new"), Client("prepared")
        stats = a.stats.transactions
        for client in (prepared, old, new):
            await client.init(a)
            await client.write(a, "1", P0)
            await trio.sleep(20)
            if client is prepared:
                assert stats.oldest_open is not None
                await a.transactions.coordinator.prepare(client.request)
        assert (stats.ids, stats.prepared, stats.log_lag) == (3, 1, 0)
        assert stats.oldest_open is not None
        wall = a.transactions.coordinator.log._tools.time.wall_ms() / 1000
        assert 39 <= wall - stats.oldest_open < 60
        for client in (old, new):
            await client.end(a)
        await trio.sleep(2)
        assert stats.oldest_open is None


async def test_what_a_client_has_left_open_is_aborted_when_its_group_asks_for_its_offsets() -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        owners = a.transactions.coordinator.log
        await client.init(a)
        await client.offsets(a, "g", 5)
        owners.end_left("g")
        await client.write(a, "1", P0)
        owners.closed(client.connection)
        owners.end_left("another")
        await trio.testing.wait_all_tasks_blocked()
        owner = owners.known("id")
        assert owner is not None
        assert owner.is_open
        owners.end_left("g")
        with trio.fail_after(120):
            while owner.is_open:  # noqa: ASYNC110 - nobody announces it
                await trio.sleep(0.005)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(a)
