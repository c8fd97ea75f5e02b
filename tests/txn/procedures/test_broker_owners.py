"""The owners of ids whose transactions the broker decides, of either kind of client: who is known, who is forgotten."""

from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing

from kproxy.codec.messages import ErrorCode
from kproxy.net.succession import Succession
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.ids import Producer
from kproxy.txn.prepared_parts import DecisionScope
from kproxy.txn.procedures import broker_owners, owner_policy
from kproxy.txn.procedures.broker_owner import BrokerOwner
from kproxy.txn.procedures.broker_owners import BrokerOwners, BrokerTools
from kproxy.txn.requests import TxnRequest
from kproxy.txn.stored_epochs import LastEnd, StoredEpoch
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker import fenced_client, native_stage
from tests.net.txn.broker.fenced_client import Client, client_of, told
from tests.net.txn.broker.native_stage import stage
from tests.net.txn.log_harness import PATIENCE
from tests.txn.procedures.memory_log import TRIO_TIME

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
        await told(ErrorCode.INVALID_REQUEST, coordinator.prepare(client.request))
        for also in (DecisionScope(members=("a",)), DecisionScope(every=True), DecisionScope("batch-1")):
            end = coordinator.end(client.request, committed=True, bumps=False, also=also)
            await told(ErrorCode.INVALID_REQUEST, end)


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


async def test_an_id_that_is_used_is_not_forgotten_however_long_ago_it_was_initialized() -> None:
    async with stage(transactional_id_timeout_ms=100_000) as cast:
        client = await client_of(cast)
        for value in "1234":
            await trio.sleep(90)
            await client.transaction(value)
        assert cast.read() == [*"1234"]


class FakeLog:
    """The log of producer ids, with entries of these ids."""

    def __init__(self, *entries: tuple[str, Producer]) -> None:
        self.entries = {name: StoredEpoch(client, client, LastEnd.NONE, 60_000, 0) for name, client in entries}
        self.enabled = True
        self.opened = trio.Event()
        self.is_read = True
        self.asked = 0
        self.deleted: list[str] = []

    async def epochs(self) -> Any:
        if not self.is_read:
            await trio.sleep_forever()
        return SimpleNamespace(of=self.entries.get, before=lambda _: list(self.entries))

    def has_epochs_before(self, recorded_ms: int) -> bool:
        self.asked += 1
        return bool(self.entries)

    def put_epoch(self, transactional_id: str, stored: StoredEpoch | None) -> trio.Event:
        assert stored is None
        self.deleted.append(transactional_id)
        return trio.Event()

    def now_ms(self) -> int:
        return 0


def _report(*_: object, **__: object) -> None:
    pass


class Alone:
    """The owners of an instance, without a cluster; its connections are counted."""

    def __init__(self, *entries: tuple[str, Producer], succession: Succession | None = None) -> None:
        self.log, self.stats, self.closed, self.resumed = FakeLog(*entries), TransactionStats(), 0, 0
        self.owners = BrokerOwners(
            BrokerTools(
                requests=lambda _: self._connections(),
                connections=self._connections,
                log=self.log,
                stats=self.stats,
                time=TRIO_TIME,
                report=_report,
                alone=(succession or Succession()).alone,
                is_own_topic=lambda _: False,
                patience_s=5.0,
                unused_ms=604_800_000,
            )
        )

    def _connections(self) -> Any:
        return SimpleNamespace(close=self._close, is_open=False, is_connected=False)

    def _close(self) -> None:
        self.closed += 1

    async def _resume(self, _: StoredEpoch) -> None:
        self.resumed += 1

    async def sweeps(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.owners.run()

    async def of(self, client: Producer, monkeypatch: pytest.MonkeyPatch) -> ErrorCode:
        with monkeypatch.context() as patched:
            patched.setattr(BrokerOwner, "resume", lambda owner, stored: self._resume(stored))
            try:
                await self.owners.owner(TxnRequest("id", client, 0, "c"))
            except TxnError as error:
                return error.error_code
        return ErrorCode.NONE


STORED = Producer(7, 5)


class TestAfterARestart:
    @pytest.mark.parametrize(
        ("client", "told"),
        [
            (STORED, ErrorCode.NONE),
            (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
            (Producer(7, 6), UNKNOWN),
            (Producer(6, 9), UNKNOWN),
            (Producer(8, 1), UNKNOWN),
        ],
        ids=str,
    )
    async def test_only_the_client_that_the_log_names_is_continued(
        self, client: Producer, told: ErrorCode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone = Alone(("id", STORED))
        assert await alone.of(client, monkeypatch) is told
        assert alone.resumed == (told is ErrorCode.NONE)
        assert alone.stats.fenced == (told is ErrorCode.PRODUCER_FENCED)

    @pytest.mark.parametrize(
        ("client", "told"),
        [
            (STORED, UNKNOWN),
            (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
            (Producer(7, 6), UNKNOWN),
            (Producer(6, 9), UNKNOWN),
        ],
        ids=str,
    )
    async def test_a_client_that_has_left_is_not_continued(
        self, client: Producer, told: ErrorCode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those before it were replaced."""
        alone = Alone(("id", STORED))
        alone.log.entries["id"] = alone.log.entries["id"]._replace(last=LastEnd.LEFT)
        assert await alone.of(client, monkeypatch) is told
        assert alone.resumed == 0

    async def test_an_owner_that_a_client_has_is_the_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alone = Alone(("id", STORED))
        owner = await alone.owners.take("id", owner_policy.CLIENT)
        owner.id.client = Producer(9, 9)
        assert await alone.owners.owner(TxnRequest("id", Producer(9, 9), 0, "c")) is owner
        assert alone.resumed == 0

    async def test_a_log_that_can_not_be_read_in_time_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alone, began = Alone(("id", STORED)), trio.current_time()
        alone.log.is_read = False
        assert await alone.of(STORED, monkeypatch) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert trio.current_time() - began == pytest.approx(5.0, abs=0.001)

    async def test_no_id_is_taken_or_continued_beside_the_kproxy_before_this(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        succession = Succession({1: 9092})
        alone = Alone(("id", STORED), succession=succession)
        assert await alone.of(STORED, monkeypatch) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with trio.move_on_after(1):
            await alone.owners.take("id", owner_policy.CLIENT)
        assert list(alone.owners) == []
        succession.ended()
        assert await alone.of(STORED, monkeypatch) is ErrorCode.NONE


class TestSweeps:
    async def test_an_owner_that_is_asked_for_is_not_forgotten(self) -> None:
        alone = Alone()
        owner = await alone.owners.take("id", owner_policy.MANAGED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone.owners.run)
            await trio.sleep(3_550)
            await alone.owners.take("id", owner_policy.MANAGED)
            await trio.sleep(3_550)
            assert list(alone.owners) == [owner]
            async with owner._turns.ordinary():  # a request is under way
                await trio.sleep(200)
                assert list(alone.owners) == [owner]
            await trio.sleep(100)
            assert (list(alone.owners), alone.closed) == ([], 2)
            nursery.cancel_scope.cancel()

    async def test_at_the_end_all_connections_are_closed(self) -> None:
        alone = Alone()
        for name in ("one", "two"):
            await alone.owners.take(name, owner_policy.CLIENT)
        await alone.sweeps(1)
        assert (alone.closed, list(alone.owners)) == (4, [])

    async def test_entries_that_are_old_are_deleted_once_the_log_has_been_read(self) -> None:
        alone = Alone(("taken", STORED), ("old", STORED))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone.owners.run)
            await alone.owners.take("taken", owner_policy.CLIENT)
            await trio.sleep(150)
            assert alone.log.asked == 0
            alone.log.opened.set()
            await trio.sleep(300)
            assert (alone.log.asked, alone.log.deleted) == (1, ["old"])
            nursery.cancel_scope.cancel()

    async def test_entries_that_grow_old_while_kproxy_runs_are_deleted_too(self) -> None:
        """They are written again until then."""
        alone = Alone()
        alone.log.opened.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone.owners.run)
            await trio.sleep(3600)
            assert alone.log.asked == 1
            alone.log.entries["old"] = StoredEpoch(STORED, STORED, LastEnd.NONE, 60_000, 0)
            await trio.sleep(86_400)
            assert (alone.log.asked, alone.log.deleted) == (2, ["old"])
            nursery.cancel_scope.cancel()

    async def test_nothing_is_deleted_from_a_log_that_has_failed(self) -> None:
        alone = Alone(("old", STORED))
        alone.log.enabled = False
        alone.log.opened.set()
        await alone.sweeps(300)
        assert alone.log.deleted == []
