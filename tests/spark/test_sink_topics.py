"""Topics that the sink is asked to write to and that do not exist."""

from collections.abc import Iterator

import pytest

from kproxy.spark.sink_topics import SinkTopics
from kproxy.spark.spark_errors import KafkaError
from tests.spark.fake_cluster import Fake, fake_cluster
from tests.spark.sink_samples import options


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running, running.client() as client:
        client.create_topic("orders", 1)
        yield running


def test_a_topic_that_exists_is_asked_for_once() -> None:
    with fake_cluster() as fake:
        with fake.client() as client:
            client.create_topic("orders", 1)
        topics = SinkTopics(options(bootstrap=fake.bootstrap, retry_ms=1000), "c")
        topics.check(["orders"])
    topics.check(["orders", "orders"])  # nobody answers any more


def test_a_topic_that_does_not_exist_is_named_and_not_created(fake: Fake) -> None:
    slept: list[float] = []
    topics = SinkTopics(options(bootstrap=fake.bootstrap, retry_ms=10_000), "c", slept.append)
    with pytest.raises(KafkaError, match=r"topic 'ordres' does not exist: create it, or set kafka\.allow\.auto"):
        topics.check(["orders", "ordres"])
    assert 4 < sum(slept) < 6
    with fake.cluster() as cluster:
        assert cluster.topics().keys() == {"orders"}


def test_a_topic_that_a_broker_learns_of_later_is_awaited(fake: Fake) -> None:
    def create(_: float) -> None:
        with fake.client() as client:
            client.create_topic("late", 1)

    SinkTopics(options(bootstrap=fake.bootstrap, retry_ms=10_000), "c", create).check(["late"])


def test_nobody_is_asked_where_the_broker_may_create_topics() -> None:
    SinkTopics(options(bootstrap="127.0.0.1:1", creates_topics=True), "c").check(["any"])
