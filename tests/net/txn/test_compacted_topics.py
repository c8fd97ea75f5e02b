"""A compacted topic is refused whichever way data come into a transaction that kproxy decides."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.log_topic import TOPIC
from kproxy.proxy.applications import CommitRule
from kproxy.txn.procedures.managed_transaction import ManagedTransaction
from kproxy.txn.txn_error import TxnError
from tests.net.txn.instances import Client, Instance, stage
from tests.net.txn.log_harness import PATIENCE
from tests.net.txn.member_scene import MemberGroup, batch, refused

PLAIN, COMPACTED, OWN = ("t", 0), ("compacted", 0), (TOPIC, 0)

Write: TypeAlias = Callable[[Instance, TopicPartition], Awaitable[None]]
"""Writes one record to a partition. TxnError."""


async def first_protocol(at: Instance, place: TopicPartition) -> None:
    """The partition was added when its topic was not compacted yet."""
    client = Client("id")
    await client.init(at)
    owner = at.transactions.coordinator.log.known("id")
    assert owner is not None
    await owner.join(client.request, [place])
    await client.send(at, [client.batch("1", place)])


async def second_protocol(at: Instance, place: TopicPartition) -> None:
    client = Client("id", bumps=True)
    await client.init(at)
    await client.send(at, [client.batch("1", place)])


async def by_hand(at: Instance, place: TopicPartition) -> None:
    await MemberGroup(at).begin_own()
    await captured(at, "own", place)


async def member(at: Instance, place: TopicPartition) -> None:
    await MemberGroup(at).initialize()
    await MemberGroup(at).begin("m")
    await captured(at, "m", place)


async def application(at: Instance, place: TopicPartition) -> None:
    consumer = at.transactions.implicit_transactions.of_consumer("copier", "g")
    assert consumer is not None
    consumer.joins(1, rewinds=True)
    consumer.fetches()
    await captured(at, "copier", place)


async def request(at: Instance, place: TopicPartition) -> None:
    await captured(at, "single", place)


async def captured(at: Instance, client_id: str, place: TopicPartition) -> None:
    """By a client that knows nothing of transactions."""
    capture = at.transactions.implicit_transactions.of(client_id)
    assert capture is not None
    capture.took(1, answered=True)
    try:
        with trio.fail_after(PATIENCE):
            await capture.write([batch("1", place)], refused=False, accepted=lambda: None)
    except TxnError as error:
        capture.failed(str(error))  # as TransactionApi does
        raise
    finally:
        capture.done()


@pytest.mark.parametrize("write", [first_protocol, second_protocol, by_hand, member, application, request])
@pytest.mark.parametrize(
    ("place", "error"),
    [(PLAIN, None), (COMPACTED, ErrorCode.POLICY_VIOLATION), (OWN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
    ids=["plain", "compacted", "kproxy's own"],
)
async def test_every_way_in(write: Write, place: TopicPartition, error: ErrorCode | None) -> None:
    async with stage(on_offset_commit=(CommitRule("copier"),), per_request=("single",)) as cast:
        cast.fake.cluster.create_topic("compacted", 1, config={"cleanup.policy": "delete,compact"})
        at = await cast.instance()
        if error is None:
            await write(at, place)
        else:
            assert await refused(write(at, place)) is error
            log = cast.fake.cluster.topics["compacted"].partitions[0].log
            assert log.end_offset == 0


async def test_a_member_that_wrote_to_a_compacted_topic_can_only_be_given_up() -> None:
    async with stage() as cast:
        cast.fake.cluster.create_topic("compacted", 1, config={"cleanup.policy": "compact"})
        at = await cast.instance()
        assert await refused(member(at, COMPACTED)) is ErrorCode.POLICY_VIOLATION
        member_group = MemberGroup(at)
        assert isinstance(at.transactions.implicit_transactions.of("m"), ManagedTransaction)
        assert await refused(member_group.prepare("m")) is ErrorCode.TRANSACTION_ABORTABLE
