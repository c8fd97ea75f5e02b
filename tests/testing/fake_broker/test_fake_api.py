"""What a handler can ask its call, and what an API declares."""

import pytest

from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.messages import ApiKey, ErrorCode, Message
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


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [
        (2, 1, ErrorCode.NONE),
        (2, -1, ErrorCode.NONE),
        (2, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_the_epoch_is_judged_before_the_leadership(broker_id: int, epoch: int, error: ErrorCode) -> None:
    cluster = two_brokers()
    cluster.move_leader(TOPIC, 0, 2)
    call = call_to(cluster, broker_id, FetchRequest())
    assert call.check_leader(cluster.topics[TOPIC].partitions[0], epoch) is error
