"""Who leads partitions, and what topics are called."""

import pytest

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.net.brokers.metadata import NoLeader
from tests.net.harness import proxied


async def test_a_leader_is_found_by_name_and_by_id_and_errors_are_kafkas() -> None:
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", 2)
        topic, metadata = proxy.brokers.topics["t"], proxy.cluster.metadata
        for index, partition in enumerate(topic.partitions):
            for ref, by_id in ((b"t", False), (topic.topic_id, True)):
                broker, error = await metadata.leader_now(ref, index, by_id)
                assert (broker and broker.node_id, error) == (partition.leader, 0)
        assert await metadata.leader_now(b"none", 0, False) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await metadata.leader_now(b"t", 9, False) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await metadata.leader_now(bytes(15) + b"x", 0, True) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert "none" not in proxy.brokers.topics


async def test_a_leader_is_learnt_once_and_again_when_it_was_forgotten() -> None:
    async with proxied(2) as proxy:
        proxy.brokers.create_topic("t", 1)
        metadata, place = proxy.cluster.metadata, ("t", 0)
        first = await metadata.find(place)
        proxy.brokers.move_leader("t", 0, 3 - first.node_id)
        asked: list[int] = []
        proxy.brokers.control(ApiKey.METADATA, lambda call: asked.append(call.broker_id))
        assert await metadata.find(place) is first is metadata.leader(place)
        assert asked == []
        metadata.forget(place)
        assert metadata.leader(place) is None
        assert (await metadata.find(place)).node_id == 3 - first.node_id
        assert len(asked) == 1


async def test_many_partitions_are_learnt_with_one_request_and_those_without_a_leader_have_kafkas_error() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 2)
        metadata, asked = proxy.cluster.metadata, list[int]()
        proxy.brokers.control(ApiKey.METADATA, lambda call: asked.append(call.broker_id))
        errors = await metadata.learn([("t", 0), ("t", 1), ("t", 2), ("none", 0)])
        assert errors == dict.fromkeys([("t", 2), ("none", 0)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert len(asked) == 1
        assert metadata.leader(("t", 0)) is metadata.leader(("t", 1)) is not None
        with pytest.raises(NoLeader) as caught:
            await metadata.find(("none", 0))
        assert caught.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_are_found_by_id_and_by_name() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t", 1)
        metadata, topic_id = proxy.cluster.metadata, proxy.brokers.topics["t"].topic_id
        assert await metadata.names([topic_id, bytes(15) + b"x"]) == {topic_id: "t"}
        assert await metadata.ids(["t", "none"]) == {"t": topic_id}
        assert "none" not in proxy.brokers.topics
