"""Which broker the demo takes; the embedded one lives exactly as long as its block."""

import threading

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.demo import demo_broker
from kproxy.demo.demo_broker import open_broker, running_fake
from kproxy.demo.failure import DemoFailed
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.raw_connection import RawConnection
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


def connect(bootstrap: str) -> RawConnection:
    host, _, port = bootstrap.rpartition(":")
    return RawConnection(host, int(port), timeout=60)


def test_it_answers_inside_the_block_and_has_ended_after_it() -> None:
    with running_fake() as bootstrap:
        with connect(bootstrap) as connection:
            answer = connection.call(MetadataRequest(topics=None), 9, MetadataResponse)
        assert [f"{broker.host}:{broker.port}" for broker in answer.brokers] == [bootstrap]
    with pytest.raises(ConnectionRefusedError):
        connect(bootstrap)


def test_an_error_in_the_block_ends_it_too() -> None:
    with pytest.raises(ZeroDivisionError), running_fake():
        raise ZeroDivisionError
    assert "fake-broker" not in [thread.name for thread in threading.enumerate()]
