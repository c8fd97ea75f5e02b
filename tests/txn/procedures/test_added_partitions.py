"""How partitions come into a transaction of the broker's: ahead of their data, and those that wait together."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
import trio
import trio.testing

from kproxy.codec._generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.net.txn.broker import broker_requests
from kproxy.testing.fake_broker import Answer, Call, Close
from kproxy.txn.ids import Producer
from kproxy.txn.procedures import added_partitions
from kproxy.txn.procedures.added_partitions import AddedPartitions
from kproxy.txn.procedures.broker_protocol import FIRST
from kproxy.txn.procedures.transaction import Transaction
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.fenced_client import client_of
from tests.net.txn.broker.native_stage import TOPIC, Stage, stage

LEVELS = pytest.mark.parametrize("level", [1, 2], ids=["TV1", "TV2"])


def _watch(cast: Stage) -> list[str | list[int]]:
    """What the broker is asked: partitions that are added, and Produce."""
    seen: list[str | list[int]] = []

    def added(call: Call) -> None:
        request = call.request
        assert isinstance(request, AddPartitionsToTxnRequest)
        seen.append([index for topic in request.v3_and_below_topics for index in topic.partitions])

    cast.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, added)
    cast.server.cluster.control(ApiKey.PRODUCE, lambda call: seen.append("data"))
    return seen


@LEVELS
async def test_those_of_all_who_wait_are_added_before_anything_is_written(level: int) -> None:
    async with stage(level) as cast:
        client = await cast.client()
        seen = _watch(cast)
        async with trio.open_nursery() as nursery:
            for index in (0, 1, 2):
                nursery.start_soon(client.send, "1", index)
        before = seen[: seen.index("data")]
        assert sorted(index for added in before for index in added) == [0, 1, 2]
        assert len(before) <= 2
        assert seen.count("data") == 1, "they go in one request"
        await client.end()
        assert cast.read() == cast.read(1) == cast.read(2) == ["1"]


async def test_in_the_second_protocol_all_that_a_client_has_added_goes_in_one_request() -> None:
    async with stage() as cast:
        client = await client_of(cast)
        seen = _watch(cast)
        await client.add(0)
        await client.add(1, 2)
        assert seen == []
        assert await client.send("1", 1) is ErrorCode.NONE
        assert [sorted(seen[0]), *seen[1:]] == [[0, 1, 2], "data"]
        assert await client.send("1", 2) is ErrorCode.NONE
        assert seen[2:] == ["data"]
        await client.end()
        assert (cast.read(), cast.read(1), cast.read(2)) == ([], ["1"], ["1"])


async def test_a_partition_that_does_not_exist_fails_only_the_request_that_writes_it() -> None:
    async with stage(1) as cast:
        client = await cast.client()
        held, go, results = trio.Event(), trio.Event(), dict[int, ErrorCode]()

        async def hold(_: Call) -> None:
            held.set()
            await go.wait()

        async def send(index: int) -> None:
            try:
                results[index] = await client.send("1", index)
            except TxnError as error:
                results[index] = error.error_code

        first = cast.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, hold)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, 0)
            await held.wait()
            for index in (7, 1):
                nursery.start_soon(send, index)
            await trio.testing.wait_all_tasks_blocked(0.05)
            cast.server.cluster.controls.remove(first)
            seen = _watch(cast)
            go.set()
        assert [1, 7] in [sorted(added) for added in seen if isinstance(added, list)]
        assert results == {0: ErrorCode.NONE, 1: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def _refuse(call: Call) -> Answer:
    row = AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult("t", [row])
    return Answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]))


@pytest.mark.parametrize("harm", [_refuse, lambda call: Close()], ids=["refused", "no answer"])
async def test_in_the_second_protocol_they_join_by_being_written_if_they_can_not_be_added(
    harm: Callable[[Call], Answer | Close], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_requests, "_AHEAD_SECONDS", 0.05)
    async with stage() as cast:
        client = await cast.client()
        cast.server.cluster.control(ApiKey.ADD_PARTITIONS_TO_TXN, harm)
        await client.write("1", 0, 1)
        await client.end()
        await client.write("2", 0, 1)
        await client.end(committed=False)
        assert cast.read() == cast.read(1) == ["1"]


class Coordinator:
    """Takes partitions, unless it refuses one of them."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.refused: dict[int, ErrorCode] = {}

    async def add_partitions(self, producer: Producer, places: Collection[TopicPartition]) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(sorted(index for _, index in places))
        for _, index in places:
            if index in self.refused:
                raise TxnError(self.refused[index], f"partition {index}")


class Adding:
    """A transaction of the first protocol, and another request that waits to write to partition 9."""

    def __init__(self) -> None:
        broker: Any = Coordinator()
        nobody: Any = None
        self.broker: Coordinator = broker
        self.added = AddedPartitions(broker)
        self.transaction = Transaction(Producer(1, 0), nobody, 0.0)

    async def announce(self, *indexes: int) -> list[int]:
        """Adds these; all that is added then."""
        with self.added.line.waiting([(TOPIC, 9)]):
            await self.added.announce(self.transaction, FIRST, [(TOPIC, index) for index in indexes])
        return sorted(index for _, index in self.transaction.announced)


class TestInTheFirstProtocol:
    async def test_nobody_waits_for_the_partitions_of_others(self) -> None:
        adding = Adding()
        adding.transaction.announced.add((TOPIC, 0))
        assert await adding.announce(0) == [0]
        assert adding.broker.asked == []

    @pytest.mark.parametrize("error", sorted(added_partitions._NOT_ADDED))
    async def test_what_others_can_not_write_is_left_out(self, error: ErrorCode) -> None:
        adding = Adding()
        adding.broker.refused[9] = error
        assert await adding.announce(0, 1) == [0, 1]
        assert adding.broker.asked == [[0, 1, 9], [0, 1]]

    async def test_what_the_request_itself_can_not_write_is_its_error_at_once(self) -> None:
        adding = Adding()
        adding.transaction.announced.add((TOPIC, 9))
        adding.broker.refused[0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(TxnError, match="TOPIC_AUTHORIZATION_FAILED"):
            await adding.announce(0)
        assert adding.broker.asked == [[0]]

    async def test_an_error_of_the_transaction_is_not_asked_about_again(self) -> None:
        adding = Adding()
        adding.broker.refused[9] = ErrorCode.PRODUCER_FENCED
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            await adding.announce(0)
        assert adding.broker.asked == [[0, 9]]

    async def test_what_is_refused_while_the_own_partitions_are_added_is_not_asked_for_again(self) -> None:
        adding = Adding()
        adding.broker.refused[8] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        add = adding.broker.add_partitions

        async def another_comes(producer: Producer, places: Collection[TopicPartition]) -> None:
            await add(producer, places)
            adding.transaction.joined.add((TOPIC, 8))

        adding.broker.add_partitions = another_comes  # type: ignore[method-assign]
        assert await adding.announce(0) == [0, 9]
        assert adding.broker.asked == [[0, 9], [8]]

    async def test_where_a_request_is_cancelled_the_broker_may_have_its_partitions(self) -> None:
        adding = Adding()
        with trio.CancelScope() as scope:
            scope.cancel()
            await adding.announce(0)
        assert scope.cancelled_caught
        assert sorted(index for _, index in adding.transaction.announced) == [0, 9]
