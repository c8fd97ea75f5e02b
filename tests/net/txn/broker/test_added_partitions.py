"""How partitions come into a transaction of the broker's: ahead of their data, and those that wait together."""

from collections.abc import Callable

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
from kproxy.net.txn.broker import broker_requests
from kproxy.testing.fake_broker import Answer, Call, Close
from kproxy.txn.txn_error import TxnError
from tests.net.txn.broker.fenced_client import client_of
from tests.net.txn.broker.native_stage import Stage, stage

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
