"""The polls of the transaction log: leaders are found again, nobody waits for a poll; topics that were deleted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio

from kproxy.codec._generated.metadata import MetadataResponse, MetadataResponseTopic
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.pool import Pool
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.own_topic import Refused
from kproxy.net.txn.log_partition import NOTHING, LogPartition
from kproxy.net.txn.log_polls import LogPolls
from kproxy.net.txn.log_topic import TOPIC
from kproxy.proxy.routing import Address, ClusterMap
from kproxy.testing.fake_broker import Drop, Edit
from tests.net.harness import eventually
from tests.net.txn.instances import TIMEOUT_MS, Client, stage
from tests.net.txn.log_harness import Following, Sink, configured, followed

pytestmark = pytest.mark.idle_clock

LONGEST = TIMEOUT_MS / 1000
#: Polls take 64 to 80 seconds.
SLOW = {"upstream_request_timeout_ms": 20_000, "delivery_timeout_ms": 60_000}


@pytest.mark.parametrize("unknown", ["reject", "wait"])
async def test_a_log_that_was_deleted_is_created_again_unless_readers_are_to_wait(unknown: str) -> None:
    slow = {"retry_backoff_ms": 5_000, "retry_backoff_max_ms": 5_000}
    async with stage(transaction_max_timeout_ms=TIMEOUT_MS, unknown_producer_ids=unknown, **slow) as cast:
        cast.fake.cluster.create_topic(TOPIC, 5, 1, config={"message.timestamp.type": "LogAppendTime"})
        a, client = await cast.instance(), Client("id")
        await client.init(a)
        await client.write(a, "1", ("t", 0))
        await client.end(a)
        cast.fake.cluster.delete_topic(TOPIC)
        await trio.sleep(LONGEST)
        assert TOPIC not in cast.fake.cluster.topics
        assert cast.visible(a.transactions.views) == ["1"], "it may be restored, or what was committed be saved"
        await trio.sleep(LONGEST)
        assert (TOPIC in cast.fake.cluster.topics) is (unknown == "reject")
        if unknown == "wait":
            assert cast.visible(a.transactions.views) == ["1"]
            return
        assert len(cast.fake.cluster.topics[TOPIC].partitions) == 5, "as before, not as planned"
        assert a.transactions.log.losses["recreated"] >= 1
        await client.init(a)
        await client.write(a, "2", ("t", 1))
        await client.end(a)
        assert cast.visible(a.transactions.views, partition=1) == ["2"]


def topic(number: int) -> MetadataResponse:
    """The topic has an id with this number, and no leaders."""
    return MetadataResponse(topics=[MetadataResponseTopic(name=TOPIC, topic_id=number.to_bytes(16, "big"))])


NOT_THERE = MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC)])


@dataclass
class Asking:
    """Polls of two partitions in a cluster that says of the topic what a test says; the last of it again and again."""

    said: list[MetadataResponse | OSError]
    options: dict[str, Any] = field(default_factory=dict)
    lost: list[tuple[int, str]] = field(default_factory=list)
    failures: int = 0
    refusals: list[Refused] = field(default_factory=list)
    #: How many partitions the topic was to be created with.
    created: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.map = ClusterMap()
        config = configured("localhost:1", retry_backoff_ms=1000, retry_backoff_max_ms=1000, **self.options)
        cluster: Any = SimpleNamespace(
            metadata=self,
            map=self.map,
            new_pool=partial(Pool, None, config, ResponseRoom()),
            count_error=self._count,
        )
        own: Any = SimpleNamespace(name=TOPIC, prepare=self._create, warn_of_refusal=self.refusals.append)
        self.polls = LogPolls(cluster, config, own, lambda: None, lambda *lost: self.lost.append(lost))
        self.parts = [LogPartition(index, Sink()) for index in range(2)]

    def _count(self, _: str) -> None:
        self.failures += 1

    async def topics(self, _: Any) -> MetadataResponse:
        await trio.lowlevel.checkpoint()
        found = self.said[0] if len(self.said) == 1 else self.said.pop(0)
        if isinstance(found, OSError):
            raise found
        return found

    async def _create(self, partitions: int) -> None:
        self.created.append(partitions)
        raise Refused("CreateTopics", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.polls.run(self.parts)


class TestTheTopic:
    async def test_only_another_id_makes_it_another_topic(self) -> None:
        """A broker that is older has none to tell, also where a newer one told it."""
        at = Asking([OSError("no answer"), topic(2), topic(0), topic(2)])
        for part in at.parts:
            part.restart(0)
        at.parts[0].position = 5
        await at.run(10)
        assert [(part.position, part.stale) for part in at.parts] == [(5, False), (0, False)]
        assert at.lost == []
        at.said = [topic(1)]
        await at.run(10)
        assert [(part.position, part.stale) for part in at.parts] == [(NOTHING, True)] * 2
        assert at.lost == [(0, "recreated")], "of the other one nothing was read"
        assert at.map.own_topic_ids == {number.to_bytes(16, "big") for number in (1, 2)}

    @pytest.mark.parametrize("was_there", [False, True])
    async def test_one_that_never_was_there_is_not_deleted(self, was_there: bool) -> None:
        """After it was created some brokers do not know it yet."""
        at = Asking([*([topic(1)] if was_there else []), NOT_THERE])
        with structlog.testing.capture_logs() as lines:
            await at.run(10)
        assert at.failures >= 8
        assert [line["log_level"] for line in lines] == ["error"] * was_there

    async def test_that_it_may_not_be_created_again_is_warned_of_once(self) -> None:
        at = Asking([topic(1), NOT_THERE], {"transaction_max_timeout_ms": TIMEOUT_MS, "unknown_producer_ids": "reject"})
        await at.run(LONGEST - 1)
        assert at.created == []
        await at.run(LONGEST)
        assert len(at.created) > 1
        assert set(at.created) == {2}
        assert [error.error_code for error in at.refusals] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_a_partition_that_nobody_polls_can_be_read_again_and_hurried() -> None:
    at = Asking([NOT_THERE])
    part = at.parts[0]
    part.restart(0)
    for leader in (None, Address("localhost", 1)):
        part.ask(leader, 0)
        at.polls.hurry(part)
        assert part.leader == leader
        at.polls.reread(part)
        assert part.stale


def refuse_once(log: Following, partition: int) -> None:
    """The next response has an error for a partition."""

    def change(message: Any) -> None:
        (row,) = [row for row in message.responses[0].partitions if row.partition_index == partition]
        row.error_code, row.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""

    log.brokers.control(ApiKey.FETCH, lambda _: Edit(change), times=1)


@asynccontextmanager
async def soon() -> AsyncIterator[None]:
    """What happens in it does not wait for the end of a poll."""
    began = trio.current_time()
    yield
    assert trio.current_time() - began < 20.0


async def test_a_partition_whose_leader_is_found_where_others_are_polled_does_not_wait_for_their_poll() -> None:
    async with followed(**SLOW) as log:
        await log.follower.read_to_ends(range(4))
        refuse_once(log, 0)
        log.write(b"b", partition=1)
        await log.at_end(1)
        async with soon():
            log.write(b"a")
            await eventually(lambda: log.sink.values() == [b"a"])


async def test_a_partition_is_read_again_at_once_and_a_log_that_is_empty_has_lost_nothing() -> None:
    async with followed(**SLOW) as log:
        log.write(b"a", b"b")
        await log.at_end()
        log.brokers.topics[TOPIC].partitions[0].log.delete_before(2)
        async with soon():
            log.follower._polls.reread(log.follower._parts[0])
            await eventually(lambda: log.sink.restarts[4:] == [(0, 2)])
        assert log.follower.losses == {}


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_hurried_partition_is_read_from_its_new_leader_and_the_others_again_from_theirs(hangs: bool) -> None:
    """A poll that is young may be answered yet."""
    async with followed(2, **SLOW) as log:
        await log.follower.read_to_ends(range(4))
        topic = log.brokers.topics[TOPIC]
        moves, stays = [part.index for part in topic.partitions if part.leader == 1]
        left = [Drop(apply=False)]

        def drop(call: Any) -> Drop | None:
            if call.broker_id != 1:
                return None
            return Drop(apply=False) if hangs else left.pop() if left else None

        control = log.brokers.control(ApiKey.FETCH, drop)
        log.write(b"a", partition=moves)
        await eventually(lambda: control.hits > 0)
        log.brokers.move_leader(TOPIC, moves, 2)
        log.write(b"b", partition=moves, sequence=1)
        log.write(b"c", partition=stays)
        await trio.sleep(19)
        part = log.follower._parts[moves]
        leader = part.leader
        log.follower._polls.hurry(part)
        assert part.leader == leader is not None
        await trio.sleep(2)
        async with soon():
            log.follower._polls.hurry(part)
            await eventually(lambda: log.sink.values(moves) == [b"a", b"b"])
            if not hangs:
                await eventually(lambda: log.sink.values(stays) == [b"c"])


async def test_instances_poll_for_different_times() -> None:
    waits: set[int] = set()
    for instance_id in "abc":
        async with followed(instance_id=instance_id) as log:
            asked: list[int] = []
            log.brokers.control(ApiKey.FETCH, lambda call: asked.append(call.request.max_wait_ms))  # noqa: B023
            log.write(b"a")
            await eventually(lambda: bool(asked))  # noqa: B023
            waits.update(asked)
    assert len(waits) == 3
