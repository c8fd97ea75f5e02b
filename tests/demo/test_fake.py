"""The embedded broker lives exactly as long as its block."""

import threading

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.demo.fake import running_fake
from kproxy.testing.raw_connection import RawConnection


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
