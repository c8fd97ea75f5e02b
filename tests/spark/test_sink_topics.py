"""Topics that the sink is asked to write to and that do not exist."""

from collections.abc import Iterator

import pytest

from kproxy.spark.sink_topics import SinkTopics
from kproxy.spark.spark_errors import KafkaError
from tests.spark.fake_cluster import Fake, fake_cluster


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running, running.client() as client:
        client.create_topic("orders", 1)
        yield running


def test_a_topic_that_exists_is_asked_for_once() -> None:
    with fake_cluster() as fake:
        with fake.client() as client:
            client.create_topic("orders", 3)
        with fake.cluster(patience_s=1) as cluster:
            topics = SinkTopics(cluster, create=False)
            assert not topics.has("orders")
            assert topics.partitions("orders") == 3
        assert topics.has("orders")
        assert topics.partitions("orders") == 3  # nobody answers any more


def test_a_topic_that_does_not_exist_is_named_and_not_created(fake: Fake) -> None:
    slept: list[float] = []
    with fake.cluster() as cluster:
        topics = SinkTopics(cluster, create=False, sleep=slept.append)
        with pytest.raises(KafkaError, match=r"topic 'ordres' does not exist: create it, or set kafka\.allow\.auto"):
            topics.partitions("ordres")
        assert 4 < sum(slept) < 6
        assert cluster.topics().keys() == {"orders"}


def test_a_topic_that_a_broker_learns_of_later_is_awaited(fake: Fake) -> None:
    def create(_: float) -> None:
        with fake.client() as client:
            client.create_topic("late", 1)

    with fake.cluster() as cluster:
        assert SinkTopics(cluster, create=False, sleep=create).partitions("late") == 1


def test_a_broker_that_may_create_topics_is_asked_to() -> None:
    with fake_cluster() as fake, fake.cluster() as cluster:
        assert SinkTopics(cluster, create=True).partitions("new") >= 1


def test_a_broker_that_creates_no_topics_is_reported() -> None:
    with (
        fake_cluster(creates_topics=False) as fake,
        fake.cluster() as cluster,
        pytest.raises(KafkaError, match="no broker creates it"),
    ):
        SinkTopics(cluster, create=True, sleep=lambda _: None).partitions("new")
