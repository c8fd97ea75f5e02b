"""kproxy's own requests to the leaders of partitions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kproxy.codec._generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestListOffsetsPartition,
    ListOffsetsRequestListOffsetsTopic,
    ListOffsetsResponse,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.version_choice import VersionRange
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.leaders import Leaders
from kproxy.net.brokers.metadata import NoLeader
from kproxy.testing.fake_broker import Close
from tests.net.harness import Proxied, proxied


@asynccontextmanager
async def asking(brokers: int = 1) -> AsyncIterator[tuple[Proxied, Leaders]]:
    async with proxied(brokers) as proxy:
        proxy.brokers.create_topic("t", 1)
        leaders = Leaders(proxy.cluster, proxy.config)
        try:
            yield proxy, leaders
        finally:
            leaders.close()


async def end(leaders: Leaders, topic: str = "t", versions: VersionRange = (1, 5)) -> tuple[int, int]:
    """The partition's error code and end offset."""
    wanted = ListOffsetsRequestListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequestListOffsetsTopic(name="t", partitions=[wanted])]
    )
    async with leaders.to((topic, 0)) as client:
        row = (await client.call(request, ListOffsetsResponse, versions)).topics[0].partitions[0]
    return row.error_code, row.offset


async def test_the_connection_is_kept_until_the_leader_has_moved() -> None:
    asked: list[tuple[int, int]] = []
    async with asking(2) as (proxy, leaders):
        proxy.brokers.control(ApiKey.LIST_OFFSETS, lambda call: asked.append((call.broker_id, call.connection)))
        assert await end(leaders) == await end(leaders) == (0, 0)
        leader = proxy.brokers.topics["t"].partitions[0].leader
        proxy.brokers.move_leader("t", 0, 3 - leader)
        assert (await end(leaders))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        proxy.cluster.metadata.forget(("t", 0))
        assert await end(leaders) == (0, 0)
    assert [broker for broker, _ in asked] == [leader, leader, leader, 3 - leader]
    assert len({connection for _, connection in asked}) == 2


async def test_a_lost_connection_is_an_error_and_the_next_request_has_another() -> None:
    async with asking() as (proxy, leaders):
        proxy.brokers.control(ApiKey.LIST_OFFSETS, lambda _: Close(), times=1)
        with pytest.raises(OSError):
            await end(leaders)
        assert await end(leaders) == (0, 0)


async def test_a_partition_without_a_leader_tells_kafkas_error() -> None:
    async with asking() as (_, leaders):
        with pytest.raises(NoLeader) as caught:
            await end(leaders, "none")
        assert caught.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_versions_that_the_broker_does_not_serve_are_not_sent() -> None:
    async with asking() as (_, leaders):
        with pytest.raises(RemoteProtocolError, match="would do"):
            await end(leaders, versions=(90, 91))
        assert await end(leaders) == (0, 0)
