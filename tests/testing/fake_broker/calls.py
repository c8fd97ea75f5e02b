"""Calls for handlers of the fake broker, without a server."""

from kproxy.codec.messages import Message
from kproxy.testing.fake_broker.fake_api import Call
from kproxy.testing.fake_broker.fake_cluster import Broker, FakeCluster

TOPIC = "t"
NOW = 1000


def two_brokers() -> FakeCluster:
    """A cluster whose topic ``t`` has one partition, led by broker 1; its clock stands at ``NOW`` ms."""
    cluster = FakeCluster(lambda: NOW, brokers={node: Broker(node, f"broker-{node}", 9092) for node in (1, 2)})
    cluster.create_topic(TOPIC)
    return cluster


def call_to(cluster: FakeCluster, broker_id: int, request: Message) -> Call:
    """A request, in the newest version, to one of the brokers."""
    return Call(cluster, broker_id, 1, "127.0.0.1", "client", request.MAX_VERSION, request, {})
