import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kproxy.codec._generated.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.proxy.routing import Address
from kproxy.spark.broker_connection import MOST_ANSWER_BYTES, Connection
from kproxy.spark.spark_errors import KafkaError
from kproxy.testing.fake_broker import Answer
from tests.spark.fake_cluster import Fake, fake_cluster

_SECONDS = 20.0


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_cluster() as running:
        yield running


class Scripted:
    """A listener that sends the given pieces, one for each request, then ends the connection."""

    def __init__(self, *answers: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._answers = answers
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Address:
        self._thread.start()
        return self.address

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(_SECONDS)

    def _run(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            for answer in self._answers:
                peer.recv(1 << 16)
                peer.sendall(answer)


def _versions(correlation_id: int = 1, error: int = 0, version: int = 3) -> bytes:
    row = ApiVersionsResponseApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=5)
    return encode_response(ApiVersionsResponse(error_code=error, api_keys=[row]), version, correlation_id)


def _connect(address: Address, timeout_s: float = _SECONDS) -> Connection:
    return Connection(address, client_id="c", timeout_s=timeout_s)


def test_it_asks_in_the_newest_version_that_both_know(fake: Fake) -> None:
    with closing(_connect(fake.addresses()[0])) as connection:
        version = connection.version(MetadataRequest, 4, 9)
        assert version == 9
        answer = connection.call(MetadataRequest(topics=[]), version, MetadataResponse)
        assert [(row.host, row.port) for row in answer.brokers] == [fake.addresses()[0]]


def test_what_the_other_side_does_not_serve_is_reported_with_its_name() -> None:
    with Scripted(_versions()) as address, closing(_connect(address)) as connection:
        assert connection.version(MetadataRequest, 4, 9) == 5
        with pytest.raises(
            KafkaError, match=rf"{address}: the broker serves versions 0 to 5 of Metadata; 6 to 9 would do"
        ):
            connection.version(MetadataRequest, 6, 9)
        with pytest.raises(KafkaError, match=r"serves no version of Fetch"):
            connection.version(FetchRequest, 4, 12)


def test_a_broker_that_knows_only_the_first_apiversions_is_asked_again() -> None:
    old = _versions(1, ErrorCode.UNSUPPORTED_VERSION, 0), _versions(2, 0, 0)
    with Scripted(*old) as address, closing(_connect(address)) as connection:
        assert connection.version(MetadataRequest, 4, 9) == 5


def test_an_error_of_apiversions_is_reported(fake: Fake) -> None:
    answer = Answer(ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    fake.on(ApiKey.API_VERSIONS, lambda call: answer)
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        _connect(fake.addresses()[0])


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(KafkaError, match=f"cannot connect to {address}"):
        _connect(address)


def test_a_silent_peer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(KafkaError, match=f"no answer from {address}"):
            _connect(address, timeout_s=0.05)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "ended the connection"),
        (b"\0\0\0\x08\0\0\0\2", "ended the connection"),
        ((MOST_ANSWER_BYTES + 1).to_bytes(4), "at most"),
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"\0\0\0\x06\0\0\0\2\0\0", "no MetadataResponse"),
        (b"\0\0\0\x04\0\0\0\7", "answers another request"),
    ],
)
def test_damage_is_reported_and_ends_the_connection(answer: bytes, words: str) -> None:
    with Scripted(_versions(), answer) as address, closing(_connect(address)) as connection:
        with pytest.raises(KafkaError, match=words):
            connection.call(MetadataRequest(topics=[]), 5, MetadataResponse)
        with pytest.raises(KafkaError, match="cannot send"):
            connection.send(MetadataRequest(topics=[]), 5)
