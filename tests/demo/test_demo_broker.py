"""Which broker the demo takes."""

import pytest

from kproxy.demo import demo_broker
from kproxy.demo.demo_broker import open_broker
from kproxy.demo.failure import DemoFailed
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.tools import Unavailable


def no_kafka() -> None:
    raise Unavailable("no Java here\nand more that nobody wants to read")


def test_the_fake_is_taken_when_asked_for_and_can_be_written_to() -> None:
    with open_broker("fake") as opened:
        opened.create_topic("t", 3)
        with ClusterClient(opened.bootstrap) as client:
            assert [client.offset("t", partition) for partition in range(3)] == [0, 0, 0]
    assert opened.excuse == ""
    assert "fake" in opened.description


def test_auto_falls_back_to_the_fake_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_broker, "RealKafka", no_kafka)
    with open_broker("auto") as opened:
        assert "fake" in opened.description
        assert opened.excuse == "No real Kafka: no Java here"


def test_a_kafka_that_was_asked_for_and_is_unavailable_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_broker, "RealKafka", no_kafka)
    with pytest.raises(DemoFailed, match="no Java here"), open_broker("kafka"):
        pass
