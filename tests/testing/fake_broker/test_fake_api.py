"""What a handler can ask its call, and what an API declares."""

import pytest

from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.messages import ApiKey, Message
from kproxy.testing.fake_broker.fake_api import Api, Call
from tests.testing.fake_broker.calls import NOW, TOPIC, call_to, two_brokers


async def nothing(call: Call) -> Message | None:
    return None


def test_a_call_finds_partitions_that_exist() -> None:
    cluster = two_brokers()
    call = call_to(cluster, 1, MetadataRequest())
    topic = cluster.topics[TOPIC]
    assert call.find(TOPIC, 0) == (topic, topic.partitions[0])


@pytest.mark.parametrize(("name", "index"), [("other", 0), (TOPIC, 1), (TOPIC, -1)])
def test_a_call_finds_nothing_else(name: str, index: int) -> None:
    assert call_to(two_brokers(), 1, MetadataRequest()).find(name, index) is None


def test_a_call_knows_its_broker_and_the_clusters_time() -> None:
    cluster = two_brokers()
    (partition,) = cluster.topics[TOPIC].partitions
    assert [call_to(cluster, broker, MetadataRequest()).leads(partition) for broker in (1, 2)] == [True, False]
    assert call_to(cluster, 1, MetadataRequest()).now == NOW


def test_an_api_advertises_what_it_serves_unless_told_otherwise() -> None:
    assert Api(ApiKey.FETCH, (4, 17), nothing).advertised == (4, 17)
    assert Api(ApiKey.PRODUCE, (3, 12), nothing, advertised_from=0).advertised == (0, 12)
