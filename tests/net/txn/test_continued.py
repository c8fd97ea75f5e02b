"""An open transaction is continued by the instance to which its client comes, or aborted where that can't be safe."""

import copy
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.txn import offset_mirror
from kproxy.testing.fake_broker import Close
from kproxy.testing.fake_broker.controls import Edit
from kproxy.testing.fake_broker.producers import ProducerStates
from kproxy.txn.log_records import RecordKind
from kproxy.txn.procedures import asking_clients
from kproxy.txn.procedures.claim_keeper import ClaimKeeper
from kproxy.txn.procedures.log_owner import LogOwner
from kproxy.txn.txn_error import TxnError
from tests.net.test_broker_log import refusing
from tests.net.txn.instances import Cast, Client, Instance, arrives, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.takeover_scene import GROUP, OFFSET, P0, P1, Gate, Point, nothing_of_former_owners, shown

pytestmark = pytest.mark.idle_clock
VERSIONS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])


@pytest.fixture(autouse=True)
def no_errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed stays in the log alone."""
    monkeypatch.setattr(offset_mirror, "_LINGER_SECONDS", 1000.0)


async def opened(cast: Cast, client: Client, *values: str) -> Instance:
    """Instance "a", where the client has written these in one transaction."""
    a = await cast.instance("a")
    await client.init(a)
    for value in values:
        await client.write(a, value, P0, P1)
    return a


def continued(*instances: Instance) -> list[int]:
    return [instance.stats.transactions.resumed for instance in instances]


@VERSIONS
async def test_the_instance_that_is_started_again_continues_it(bumps: bool) -> None:
    async with stage(2) as cast:
        client = Client("id", bumps)
        a = await opened(cast, client, "1", "2")
        await a.kill()
        again = await cast.instance("a")
        await client.write(again, "3", P0, P1)
        assert cast.visible(again.transactions.views) == []
        await client.end(again)
        await client.write(again, "4", P0, P1)
        await client.end(again)
        assert await shown(cast, again) == ["1", "2", "3", "4"]
        assert continued(again) == [1]
        assert again.stats.transactions.open == 0
        nothing_of_former_owners(cast)


@VERSIONS
async def test_another_instance_continues_it_when_the_client_has_asked_for_a_while(bumps: bool) -> None:
    async with stage(2) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await a.kill()
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await client.end(b)
        await arrives(lambda: client.end(b))
        assert await shown(cast, b) == ["1"]
        assert continued(b) == [1]


async def test_nobody_else_takes_the_id_over_by_asking() -> None:
    async with stage() as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        former = Client("id", producer=client.producer._replace(epoch=client.producer.epoch - 1))
        for _ in range(100):
            with pytest.raises(TxnError, match=r"NOT_COORDINATOR|PRODUCER_FENCED"):
                await former.end(b)
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await Client("id").end(b)
            await trio.sleep(0.1)
        await client.end(a)
        assert await shown(cast, a) == ["1"]


async def test_a_client_that_asks_seldom_has_not_lost_its_instance() -> None:
    async with stage() as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        for _ in range(5):
            with pytest.raises(TxnError, match="NOT_COORDINATOR"):
                await client.end(b)
            await trio.sleep(asking_clients._PATIENCE_SECONDS + 0.1)
        await client.end(a)


@VERSIONS
async def test_it_is_continued_again_and_again(bumps: bool) -> None:
    async with stage(2) as cast:
        client = Client("id", bumps)
        at = await opened(cast, client, "0")
        for value in "1234":
            await at.kill()
            at = await cast.instance("a")
            if value != "2":
                await client.write(at, value, P0, P1)
            else:
                await client.offsets(at, GROUP, OFFSET)
        await client.end(at)
        assert await shown(cast, at) == ["0", "1", "3", "4"]
        views = at.transactions.views
        assert [record.group_id for _, _, record in views.unmirrored_offsets(GROUP)] == [GROUP]


@VERSIONS
@pytest.mark.parametrize("point", Point)
async def test_a_former_instance_that_is_only_slow_writes_nothing_more(point: Point, bumps: bool) -> None:
    async with stage(2) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        gate, batches = Gate(None, point), [client.batch("2", place) for place in (P0, P1)]
        gate.close(cast)
        with suppress(TxnError, trio.TooSlowError):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(quietly, lambda: client.send(a, batches))
                with trio.fail_after(PATIENCE):
                    await gate.reached.wait()
                rows = await arrives(lambda: client.send(b, [fresh(batch) for batch in batches]))
                assert [row.error_code for row in rows] == [0, 0]
                await client.end(b)
                gate.go.set()
        await client.write(b, "3", P0, P1)
        await client.end(b)
        assert await shown(cast, a, b) == ["1", "2", "3"]
        with pytest.raises(TxnError, match=r"NOT_COORDINATOR|PRODUCER_FENCED"):
            await Client("id", bumps, producer=client.producer).end(a)
        assert a.stats.transactions.open == b.stats.transactions.open == 0
        await client.write(b, "4", P0, P1)
        assert not is_open(a)
        await b.kill()
        await arrives(lambda: client.end(a))
        assert await shown(cast, a) == ["1", "2", "3", "4"]
        assert continued(a, b) == [1, 1]
        nothing_of_former_owners(cast)


def is_open(at: Instance) -> bool:
    return at.transactions.open > 0


async def quietly(ask: Callable[[], Any]) -> None:
    with suppress(TxnError, trio.TooSlowError):
        await ask()


def fresh(batch: Any) -> Any:
    """The same batch from the client's memory: kproxy stamps what it is given."""
    return batch._replace(batch=memoryview(bytearray(batch.batch)))


@VERSIONS
async def test_a_commit_that_the_former_instance_sends_too_late_is_refused(bumps: bool) -> None:
    async with stage(2, upstream_request_timeout_ms=60_000) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        gate, batches = Gate(RecordKind.DECISION, Point.LATE), [client.batch("2", place) for place in (P0, P1)]
        gate.close(cast)
        slow = Client("id", bumps, producer=client.producer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quietly, lambda: slow.end(a))
            with trio.fail_after(PATIENCE):
                await gate.reached.wait()
            if not bumps:
                assert not await arrives(lambda: client.add(b, P0, P1))
            await arrives(lambda: client.send(b, [fresh(batch) for batch in batches]))
            gate.go.set()
        await client.end(b)
        assert await shown(cast, a, b) == ["1", "2"]
        nothing_of_former_owners(cast)


async def test_an_abort_that_the_former_self_sends_too_late_counts_and_is_answered() -> None:
    async with stage(2, upstream_request_timeout_ms=60_000) as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1")
        await a.transactions.coordinator.abort("id", client.producer)
        gate, before = Gate(RecordKind.DECISION, Point.LATE), client.producer
        gate.close(cast)
        slow = Client("id", bumps=True, producer=before)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quietly, lambda: slow.end(a, committed=False))
            with trio.fail_after(PATIENCE):
                await gate.reached.wait()
            await a.kill()
            again = await cast.instance("a")
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.send(again, [client.batch("2", P0)])
            gate.go.set()
            with trio.fail_after(PATIENCE):
                while (view := await again.transactions.log.read_to_end("id")) is None or view.client == before:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        assert await client.end(again, committed=False) == view.client
        await client.write(again, "3", P0, P1)
        await client.end(again)
        assert await shown(cast, again) == ["3"]


@VERSIONS
async def test_what_a_former_instance_announces_after_the_abort_is_not_continued(bumps: bool) -> None:
    async with stage(2, upstream_request_timeout_ms=60_000) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await client.end(a, committed=False)
        gate, batches = Gate(RecordKind.PARTITIONS, Point.LATE), [client.batch("2", place) for place in (P0, P1)]
        if not bumps:
            await client.add(a, P0, P1)
        gate.close(cast)
        slow = Client("id", bumps, producer=client.producer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(quietly, lambda: slow.send(a, batches))
            with trio.fail_after(PATIENCE):
                await gate.reached.wait()
            await arrives(lambda: client.end(b, committed=False))
            gate.go.set()
        await a.kill()
        again = await cast.instance("a")
        client._next.setdefault(P0, 1)
        client._next.setdefault(P1, 1)
        if not bumps:
            await arrives(lambda: client.add(again, P0, P1))
        more = [client.batch("3", place) for place in (P0, P1)]
        await arrives(lambda: client.send(again, [fresh(batch) for batch in more]))
        await arrives(lambda: client.end(again))
        assert await shown(cast, again, b) == ["3"]
        nothing_of_former_owners(cast)


@VERSIONS
@pytest.mark.parametrize("writes", [False, True])
async def test_an_instance_that_the_client_comes_back_to_knows_what_it_did_elsewhere(bumps: bool, writes: bool) -> None:
    async with stage(2) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await client.end(a)
        if not bumps:
            assert not await arrives(lambda: client.add(b, P0, P1))
        batches = [client.batch("2", place) for place in (P0, P1)]
        await arrives(lambda: client.send(b, [fresh(batch) for batch in batches]))
        await b.kill()
        if writes:
            more = [client.batch("3", place) for place in (P0, P1)]
            rows = await arrives(lambda: client.send(a, [fresh(batch) for batch in more]))
            assert [row.error_code for row in rows] == [0, 0]
        await arrives(lambda: client.end(a))
        assert await shown(cast, a) == ["1", "2", *(["3"] if writes else [])]
        assert continued(a) == [1]


async def test_its_time_is_that_since_it_began() -> None:
    async with stage() as cast:
        cast.fake.cluster.clock = lambda: int(trio.current_time() * 1000)
        client = Client("id")
        a = await opened(cast, client, "1")
        await trio.sleep(40)
        await a.kill()
        again = await cast.instance("a")
        await client.write(again, "2", P0, P1)
        await trio.sleep(30)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(again)
        await client.abort_and_commit(again, "3", P0, P1)
        assert await shown(cast, again) == ["3"]


async def test_a_client_that_never_comes_back_is_waited_for_no_longer_than_its_time_out() -> None:
    async with stage() as cast:
        a = await opened(cast, Client("id"), "1")
        await a.kill()
        again = await cast.instance("a")
        await trio.sleep(20)
        view = again.transactions.views.of("id")
        assert view is not None
        assert view.ongoing is not None
        await trio.sleep(80)
        assert view.ongoing is None
        assert continued(again) == [0]


async def test_a_group_does_not_wait_for_a_producer_that_has_ended() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1")
        await client.offsets(a, GROUP, OFFSET)
        await a.kill()
        again = await cast.instance("a")
        view = again.transactions.views.of("id")
        assert view is not None
        with trio.fail_after(PATIENCE):
            while view.ongoing is not None:
                again.transactions.coordinator.log.end_left(GROUP)  # its members ask again and again
                await trio.sleep(0.01)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(again)


# -- in doubt it is aborted


async def is_aborted(cast: Cast, client: Client, ask: Callable[[Instance], Any]) -> None:
    again = await cast.instance("a")
    with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
        await ask(again)
    await client.abort_and_commit(again, "9", P0, P1)
    assert await shown(cast, again) == ["9"]


@VERSIONS
async def test_without_the_right_to_fence_it_is_aborted(bumps: bool) -> None:
    async with stage() as cast:
        client = Client("id", bumps)
        a = await opened(cast, client, "1")
        await a.kill()
        refused = Edit(refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        cast.fake.cluster.control(ApiKey.WRITE_TXN_MARKERS, lambda _: refused)
        await is_aborted(cast, client, client.end)


async def test_partitions_that_do_not_answer_are_not_waited_for_long() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1")
        await a.kill()
        again = await cast.instance("a")
        cast.fake.cluster.control(ApiKey.WRITE_TXN_MARKERS, lambda _: Close())
        coordinator = again.transactions.coordinator
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await coordinator.end(client.request, committed=True, bumps=True)
        await client.end(again, committed=False)


async def test_records_that_are_deleted_are_missed() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1", "2")
        await a.kill()
        cast.fake.cluster.topics["t"].partitions[0].log.delete_before(1)
        again = await cast.instance("a")
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(again)


async def test_a_topic_that_was_created_again_is_noticed_by_its_end() -> None:
    async with stage() as cast:
        other, client = Client("other", bumps=True), Client("id", bumps=True)
        a = await opened(cast, other, "0")
        await other.end(a)
        await client.init(a)
        await client.write(a, "1", P0, P1)
        await a.kill()
        cast.fake.cluster.delete_topic("t")
        cast.fake.cluster.create_topic("t", 4)
        again = await cast.instance("a")
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(again)


async def test_a_second_copy_of_a_batch_is_noticed() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1")
        partition = cast.fake.cluster.topics["t"].partitions[0]
        partition.log.producers = ProducerStates()
        (data,) = cast.batches(*P0)
        assert partition.log.append(memoryview(bytearray(data)), 0, 1).error == ErrorCode.NONE
        await a.kill()
        again = await cast.instance("a")
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await client.end(again)


async def test_what_the_client_added_and_has_not_written_is_not_known() -> None:
    async with stage() as cast:
        client = Client("id")
        a = await opened(cast, client, "1")
        place = ("t", 2)
        assert not await client.add(a, place)
        await a.kill()

        async def ask(again: Instance) -> None:
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                await client.send(again, [client.batch("2", place)])
            client._next.pop(place)
            await client.end(again)

        await is_aborted(cast, client, ask)


async def test_offsets_of_the_first_protocol_are_not_mixed_with_those_before() -> None:
    async with stage() as cast:
        client = Client("id")
        a = await opened(cast, client, "1")
        await client.offsets(a, GROUP, OFFSET)
        await a.kill()
        await is_aborted(cast, client, lambda again: client.offsets(again, GROUP, OFFSET))


async def test_a_sequence_that_was_left_out_is_refused() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await opened(cast, client, "1")
        await a.kill()
        again = await cast.instance("a")
        client.batch("lost", P0)
        (row,) = await client.send(again, [client.batch("3", P0)])
        assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_batch_that_is_there_is_answered_and_not_written_again() -> None:
    async with stage() as cast:
        client = Client("id", bumps=True)
        a = await cast.instance("a")
        await client.init(a)
        batches = [client.batch(value, P0) for value in ("1", "2", "3")]
        offsets = [(await client.send(a, [fresh(batch)]))[0].base_offset for batch in batches]
        await a.kill()
        again = await cast.instance("a")
        told = [(await client.send(again, [fresh(batch)]))[0] for batch in batches]
        assert [(row.error_code, row.base_offset) for row in told] == [(0, offset) for offset in offsets]
        await client.end(again)
        assert cast.visible(again.transactions.views) == ["1", "2", "3"]


# -- the client comes back to an instance that it has left


async def returned(cast: Cast, client: Client) -> Instance:
    """Instance "a", to which the client has come back over connection 2 in the transaction after one that ended at "b".

    In the one before it wrote "1", in this one "2".
    """
    a, b = await opened(cast, client, "1"), await cast.instance("b")
    await arrives(lambda: client.end(b))
    assert not await client.add(b, P0, P1)
    await client.write(b, "2", P0, P1)
    await b.kill()
    client.connection = 2
    return a


async def test_a_late_end_is_refused_where_the_client_has_come_back_with_data() -> None:
    async with stage(2) as cast:
        client = Client("id")
        a = await returned(cast, client)
        late = client.request._replace(connection=1)
        batches = [client.batch("3", place) for place in (P0, P1)]
        await arrives(lambda: client.send(a, [fresh(batch) for batch in batches]))
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            await a.transactions.coordinator.end(late, committed=True, bumps=False)
        await client.end(a, committed=False)
        assert await shown(cast, a) == ["1"]


async def test_late_data_are_refused_where_the_client_has_come_back() -> None:
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client), await cast.instance("b")
        late, batch = client.request, client.batch("1", P0)
        assert not await arrives(lambda: client.add(b, P0))
        assert (await client.send(b, [fresh(batch)]))[0].error_code == 0
        await client.end(b)
        await b.kill()
        client.connection = 2
        assert not await arrives(lambda: client.add(a, P0))
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            await a.transactions.coordinator.produce(late, [fresh(batch)], implicit=False, accepted=lambda: None)
        await client.write(a, "2", P0)
        await client.end(a)
        assert cast.visible(a.transactions.views) == ["1", "2"]


# -- an instance that has not noticed that its client is elsewhere


@VERSIONS
async def test_what_a_former_producer_left_open_takes_nothing_of_the_next(bumps: bool) -> None:
    async with stage(2) as cast:
        a, b = await opened(cast, Client("id", bumps), "1"), await cast.instance("b")
        client = Client("id", bumps)
        await client.init(b)
        if not bumps:
            assert not await client.add(b, P0, P1)
        await client.send(b, [client.batch("2", P0)])
        await takes_nothing(a, client, client.batch("3", P1))
        assert not is_open(a)


async def takes_nothing(at: Instance, client: Client, batch: Any) -> None:
    """What is acknowledged there no commit at the other instance would know."""
    coordinator = at.transactions.coordinator
    assert coordinator.takes_at_once("id", [batch])
    with pytest.raises(TxnError):
        coordinator.produce_at_once(client.request, [fresh(batch)], lambda _: None, implicit=client.bumps)
    with pytest.raises(TxnError, match="NOT_COORDINATOR"):
        await client.send(at, [fresh(batch)])


async def test_a_transaction_that_another_instance_has_aborted_takes_nothing_more() -> None:
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        refused = Edit(refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        cast.fake.cluster.control(ApiKey.WRITE_TXN_MARKERS, lambda _: refused)
        await arrives(lambda: client.end(b, committed=False))
        assert not await client.add(b, P0)
        await a.transactions.log.read_to_end("id")
        await takes_nothing(a, client, client.batch("2", P0))


@VERSIONS
async def test_what_another_instance_has_begun_just_now_is_not_lost_in_silence(bumps: bool) -> None:
    """The client's connections are spread: "b" has taken its id over, and "a" wrote before "b" claimed it."""
    async with stage(2) as cast:
        client = Client("id", bumps)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await client.end(a)
        view = await b.transactions.log.read_to_end("id")
        await client.write(a, "2", P0)
        owner = LogOwner("id", b.transactions.coordinator.log._tools)
        idle = SimpleNamespace(**{name: getattr(view, name) for name in ("claim", "client", "last")})
        idle.ongoing, idle.is_doomed, idle.awaits_client = None, False, lambda: False
        await owner.adopt(idle)  # type: ignore[arg-type]  # as it was before "2"
        batch = client.batch("3", P1)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            if not bumps:
                await owner.join(client.request, [P1])
            await owner.produce(client.request, [batch], implicit=bumps, accepted=lambda: None)
        await owner.end(client.request, committed=False, bumps=bumps)
        assert await shown(cast, b) == ["1"]


async def test_an_end_is_repeated_at_the_instance_whose_transaction_another_has_aborted() -> None:
    """The client has no response to its abort at "b", which has raised its epoch."""
    async with stage(2) as cast:
        client = Client("id", bumps=True)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await b.transactions.coordinator.abort("id", client.producer)
        before = client.producer
        told = await arrives(lambda: client.end(b, committed=False))
        client.producer = before
        await a.transactions.log.read_to_end("id")
        assert await arrives(lambda: client.end(a, committed=False)) == told
        await client.write(a, "2", P0, P1)
        await client.end(a)
        assert await shown(cast, a, b) == ["2"]


@pytest.fixture
def lags(monkeypatch: pytest.MonkeyPatch) -> Callable[[Instance], None]:
    """Has the owner of the id at an instance know nothing of what the log takes from now on, until it reads it."""

    def lag(at: Instance) -> None:
        owner = at.transactions.coordinator.log.known("id")
        assert owner is not None
        stale, now, read = copy.deepcopy(owner.keeper.view), ClaimKeeper.view, owner.keeper.read_to_end

        async def reads() -> Any:
            monkeypatch.setattr(ClaimKeeper, "view", now)
            return await read()

        view = property(lambda keeper: stale if keeper is owner.keeper else now.__get__(keeper))
        monkeypatch.setattr(ClaimKeeper, "view", view)
        monkeypatch.setattr(owner.keeper, "read_to_end", reads)

    return lag


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_an_instance_without_a_claim_notices_what_the_former_one_ends(
    repeats: bool, late: bool, lags: Callable[[Instance], None]
) -> None:
    """The client's connections are spread: it learns from "b" that its transaction was aborted, and ends it at "a"."""
    async with stage(2) as cast:
        client = Client("id", bumps=True)
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await a.transactions.coordinator.abort("id", client.producer)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            await arrives(lambda: client.send(b, [client.batch("2", P0)]))
        former = Client("id", bumps=True, producer=client.producer)
        if late:
            lags(b)
        told = await client.end(a, committed=False)
        await b.transactions.log.read_to_end("id")
        if repeats:
            client.producer = former.producer
            assert await arrives(lambda: client.end(b, committed=False)) == told
        batches = [client.batch("3", place) for place in (P0, P1)]
        await arrives(lambda: client.send(b, [fresh(batch) for batch in batches]))
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await former.send(b, [former.batch("4", P0)])
        await client.end(b)
        assert await shown(cast, a, b) == ["3"]


async def aborted_elsewhere(client: Client, a: Instance, b: Instance, lags: Callable[[Instance], None]) -> None:
    """The client's transaction at "a" is aborted at "b", for the client too; "a" has not read it."""
    lags(a)
    await b.transactions.coordinator.abort("id", client.producer)
    await arrives(lambda: client.end(b, committed=False))


async def test_what_another_instance_has_aborted_writes_nothing_more(lags: Callable[[Instance], None]) -> None:
    """The client's next transaction is at "b", and "a" has not read the claim that aborted the last one."""
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await aborted_elsewhere(client, a, b, lags)
        assert not await client.add(b, P0)
        with suppress(TxnError):
            (row,) = await client.send(a, [client.batch("2", P0)])
            assert row.error_code
        await client.end(b, committed=False)
        await client.write(b, "3", P0, P1)
        await client.end(b)
        assert await shown(cast, b) == ["3"]


async def test_what_is_added_again_is_nothing_of_the_transaction_that_another_has_aborted(
    lags: Callable[[Instance], None],
) -> None:
    """The client has committed at "b" since: a commit of what it begins at "a" would be a success there."""
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await aborted_elsewhere(client, a, b, lags)
        await client.write(b, "2", P1)
        await client.end(b)
        with pytest.raises(TxnError, match="NOT_COORDINATOR"):
            await client.add(a, P0)


async def test_without_the_right_to_fence_the_next_transaction_begins_all_the_same() -> None:
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await a.kill()
        refused = Edit(refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        cast.fake.cluster.control(ApiKey.WRITE_TXN_MARKERS, lambda _: refused)
        await arrives(lambda: client.end(b, committed=False))
        await client.write(b, "2", P0, P1)
        await client.end(b)
        assert await shown(cast, b) == ["2"]


async def test_partitions_that_can_not_be_fenced_are_not_added() -> None:
    async with stage(2) as cast:
        client = Client("id")
        a, b = await opened(cast, client, "1"), await cast.instance("b")
        await a.kill()
        await arrives(lambda: client.end(b, committed=False))
        refused = Edit(refusing(ErrorCode.INVALID_REQUEST))
        control = cast.fake.cluster.control(ApiKey.WRITE_TXN_MARKERS, lambda _: refused)
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await client.add(b, P0)
        cast.fake.cluster.controls.remove(control)
        await client.write(b, "2", P0, P1)
        await client.end(b)
        assert await shown(cast, b) == ["2"]
