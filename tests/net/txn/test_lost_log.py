"""A transaction log that is truncated, recreated or without its beginning blocks no id for ever.

It is against the assumptions, and committed data may be lost. But nothing undecided is shown, and clients continue.
"""

from collections.abc import Callable
from functools import partial

import pytest
import trio

from kproxy.codec.messages import ApiKey
from kproxy.net.txn import beginning_rounds, log_follower
from kproxy.net.txn.log_topic import TOPIC
from kproxy.testing.fake_broker import Call
from kproxy.txn import lost_beginnings
from kproxy.txn.ids import log_partition
from kproxy.txn.txn_error import TxnError
from tests.net.harness import eventually
from tests.net.txn.instances import Cast, Client, Instance, stage
from tests.net.txn.takeover_scene import Gate, Point, RecordKind

pytestmark = pytest.mark.idle_clock

P0 = ("t", 0)
LOG = log_partition("id", 4)
VERSIONS = pytest.mark.parametrize("bumps", [False, True], ids=["TV1", "TV2"])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_ASK_AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(beginning_rounds, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(lost_beginnings, "GRACE_SECONDS", 0.2)


def _truncate(cast: Cast) -> None:
    """Everything is lost that the id said."""
    part = cast.fake.cluster.topics[TOPIC].partitions[LOG]
    part.log.truncate(0)
    part.lead(part.leader)


def _recreate(cast: Cast) -> None:
    cast.fake.cluster.delete_topic(TOPIC)
    cast.fake.cluster.create_topic(TOPIC, 4, 1, config={"message.timestamp.type": "LogAppendTime"})


LOSSES = pytest.mark.parametrize("lose", [_truncate, _recreate], ids=["truncated", "recreated"])
Lose = Callable[[Cast], None]


async def goes_on(cast: Cast, a: Instance, client: Client, *shown: str) -> None:
    """The client aborts and commits another transaction, which readers see, now and at other instances."""
    try:
        await client.end(a, committed=False)
    except TxnError:
        await client.init(a)  # its identity is lost, too
    await client.write(a, "next", ("t", 1))
    await client.end(a)
    assert cast.visible(a.transactions.views, partition=1) == ["next"]
    assert cast.visible(a.transactions.views) == list(shown)
    b = await cast.instance("b")
    assert cast.visible(b.transactions.views, partition=1) == ["next"]
    assert cast.visible(b.transactions.views) == list(shown)


@LOSSES
@VERSIONS
async def test_an_open_transaction_is_answered_as_aborted(bumps: bool, lose: Lose) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "lost", P0)
        lose(cast)
        with pytest.raises(TxnError, match=r"TRANSACTION_ABORTABLE|PRODUCER_FENCED"):
            await client.end(a)
        await goes_on(cast, a, client)
        assert sum(a.transactions.log.losses.values()) >= 1


@LOSSES
@VERSIONS
async def test_a_decision_that_was_acknowledged_and_is_lost_before_it_is_read_is_no_success(
    bumps: bool, lose: Lose
) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id", bumps)
        await client.init(a)
        await client.write(a, "lost", P0)
        held, go = trio.Event(), trio.Event()

        async def hold(_: Call) -> None:
            held.set()
            await go.wait()

        control = cast.fake.cluster.control(ApiKey.FETCH, hold)
        await held.wait()
        gate = Gate(RecordKind.DECISION, Point.UNACKNOWLEDGED)
        gate.close(cast)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_fails, client, a))
            await gate.reached.wait()
            lose(cast)
            gate.go.set()
            cast.fake.cluster.controls.remove(control)
            go.set()
        await goes_on(cast, a, client)


async def _fails(client: Client, at: Instance) -> None:
    asking = Client("id", client.bumps, producer=client.producer)
    with pytest.raises(TxnError):
        await asking.end(at)


@LOSSES
async def test_a_new_producer_gets_the_id(lose: Lose) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "lost", P0)
        lose(cast)
        new = Client("id")
        await new.init(a)
        await new.write(a, "next", ("t", 1))
        await new.end(a)
        assert cast.visible(a.transactions.views, partition=1) == ["next"]
        with pytest.raises(TxnError):
            await client.end(a)


async def _beginning_lost(cast: Cast, a: Instance) -> Client:
    client = Client("id")
    await client.init(a)
    await client.write(a, "1", P0)
    await client.end(a)
    partition = cast.fake.cluster.topics[TOPIC].partitions[LOG]
    partition.log.delete_before(partition.log.end_offset - 1)
    return client


async def test_who_has_read_a_beginning_that_was_deleted_states_it() -> None:
    async with stage() as cast:
        a = await cast.instance()
        client = await _beginning_lost(cast, a)
        await eventually(lambda: a.transactions.log.losses.get("beginning", 0) == 1)
        b = await cast.instance("b")
        await b.transactions.log.read_to_end("id")
        assert cast.visible(b.transactions.views) == ["1"]
        await client.write(a, "2", P0)
        await client.end(a)
        await b.transactions.log.read_to_end("id")
        assert cast.visible(b.transactions.views) == ["1", "2"]
        assert a.transactions.log.losses == {"beginning": 1}


async def test_where_nobody_has_read_it_kproxy_continues_with_what_is_left() -> None:
    async with stage() as cast:
        a = await cast.instance()
        await _beginning_lost(cast, a)
        await a.kill()
        b, new = await cast.instance("b"), Client("id")
        with pytest.raises(TxnError, match="COORDINATOR_NOT_AVAILABLE"):
            await new.init(b)
        await eventually(lambda: b.transactions.log.losses.get("beginning", 0) == 1)
        await new.init(b)
        await new.write(b, "next", ("t", 1))
        await new.end(b)
        assert cast.visible(b.transactions.views, partition=1) == ["next"]
        assert cast.visible(b.transactions.views) == []


@LOSSES
async def test_a_snapshot_in_flight_damages_nothing(lose: Lose) -> None:
    async with stage() as cast:
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "lost", P0)
        await client.end(a)
        gate = Gate(RecordKind.SNAPSHOT, Point.LATE)
        gate.close(cast)
        deleted: list[Call] = []
        cast.fake.cluster.control(ApiKey.DELETE_RECORDS, deleted.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.transactions.snapshots.take, LOG)
            await gate.reached.wait()
            lose(cast)
            gate.go.set()
        assert deleted == []
        assert a.transactions.views.knows(LOG)
        await goes_on(cast, a, client)
