"""OffsetCommit v0 and OffsetFetch v0 find the group's coordinator, wherever the client sent them."""

import pytest
import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorResponse
from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproxy.codec._generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.coordinators import Coordinators
from kproxy.net.connection import Connection
from kproxy.testing.fake_broker import Answer, Close
from tests.net.brokers.coordinator_pauses import hurry
from tests.net.harness import FrameClient, eventually, proxied


async def commit(client: FrameClient, group: str, version: int = 0) -> int:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="m")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[row])]
    answer = await client.call(OffsetCommitRequest(group_id=group, topics=topics), version)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(client: FrameClient, group: str, version: int = 0) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopic("t", [0])]
    answer = await client.call(OffsetFetchRequest(group_id=group, topics=topics), version)
    row = answer.topics[0].partitions[0]
    return row.error_code, row.committed_offset


async def test_offsets_of_v0_are_kept_in_kafkas_groups_whatever_broker_is_asked() -> None:
    async with proxied(3) as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client(1) as one, await proxy.client(2) as two:
            for group in ("a", "b", "c", "d"):
                assert await committed(two, group) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
                assert await commit(one, group) == 0
                assert await committed(two, group) == (0, 42)


async def test_a_commit_v1_of_a_simple_consumer_is_kept() -> None:
    """Finding 4: on Kafka 4 it hung up, and nothing was committed."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        async with await proxy.client() as client:
            assert await commit(client, "g", 1) == 0
            assert await committed(client, "g", 1) == (0, 42)


async def test_an_errand_is_tried_again_until_the_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    nobody = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1)
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.FIND_COORDINATOR, lambda _: Answer(nobody), times=2)
        proxy.brokers.control(ApiKey.OFFSET_COMMIT, lambda _: Close(), times=2)
        async with await proxy.client() as client:
            assert await commit(client, "g") == 0
        assert proxy.stats.upstream.errors["errand"] == 2


async def test_an_errand_that_nobody_serves_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    async with proxied() as proxy:
        proxy.brokers.control(ApiKey.OFFSET_FETCH, lambda _: Close())
        async with await proxy.client() as client:
            await client.send(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])]), 0)
            assert await client.ended()


async def test_answers_that_are_there_at_the_same_time_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, asked, writes = trio.Event(), list[object](), list[int]()
    flush_client = Connection.flush_client

    async def ask_coordinator(*given: object) -> OffsetFetchResponse:
        asked.append(given)
        await gate.wait()
        return OffsetFetchResponse()

    async def count(self: Connection) -> None:
        writes.append(len(self.session.to_client))
        await flush_client(self)

    monkeypatch.setattr(Coordinators, "ask", ask_coordinator)
    monkeypatch.setattr(Connection, "flush_client", count)
    async with proxied() as proxy, await proxy.client() as client:
        for _ in range(5):
            await client.send(OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])]), 0)
        await eventually(lambda: len(asked) == 5)
        del writes[:]
        gate.set()
        for _ in range(5):
            assert (await client.receive()).topics == []
        assert len(writes) == 1
