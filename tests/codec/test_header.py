import json
import random
from collections.abc import Iterator

import pytest

from kproxy.budget import unbounded
from kproxy.codec.header import (
    RequestHeader,
    decode_request_header,
    encode_request,
    encode_response,
    request_header_version,
    response_header_size,
    response_header_version,
)
from kproxy.codec.messages import APIS, ApiKey, request_class, response_class
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from tests.support.java import JavaLines
from tests.support.message_oracle import message_oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaLines]:
    with message_oracle("3.9.1", "4.4.0") as running:
        yield running


@pytest.mark.java
def test_header_versions_are_kafkas(oracle: JavaLines) -> None:
    # 3.9.1 still has the key that 4.0 dropped, and writes no client id in its version 0.
    assert oracle.ask("headers 3.9.1 7 0") == "0 0"
    for api_key, (name, low, high, _) in APIS.items():
        oldest = int(oracle.ask(f"range 4.4.0 {name}Request").split()[0])
        for version in range(low, high + 1):
            release = "4.4.0" if version >= oldest else "3.9.1"
            ours = f"{request_header_version(api_key, version)} {response_header_version(api_key, version)}"
            assert oracle.ask(f"headers {release} {api_key} {version}") == ours, (api_key, version)


@pytest.mark.java
@pytest.mark.parametrize("client_id", ["", "büro 🦀", None])
def test_headers_are_read_and_written_as_by_kafka(oracle: JavaLines, client_id: str | None) -> None:
    request, response = request_class(ApiKey.METADATA)(), response_class(ApiKey.METADATA)()
    for version, release in ((1, "3.9.1"), (1, "4.4.0"), (9, "3.9.1"), (9, "4.4.0")):
        values = {"requestApiKey": 3, "requestApiVersion": version, "correlationId": -5, "clientId": client_id}
        header_version = request_header_version(ApiKey.METADATA, version)
        theirs = oracle.ask(f"write {release} RequestHeader {header_version} {json.dumps(values)}")
        ours = encode_request(request, version, -5, client_id)[4:]
        assert ours.hex() == theirs + request.encode(version).hex()
        assert decode_request_header(bytes.fromhex(theirs)).client_id == client_id

        theirs = oracle.ask(f'write {release} ResponseHeader {header_version - 1} {{"correlationId": -5}}')
        assert encode_response(response, version, -5)[4:].hex() == theirs + response.encode(version).hex()


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 0, 1, 0),
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.OFFSET_DELETE, 0, 1, 0),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (9999, 3, 1, 0),
    ],
)
def test_header_versions(api_key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(api_key, version) == request_header
    assert response_header_version(api_key, version) == response_header


@pytest.mark.parametrize("client_id", ["", "app", "büro", None, "x" * 32767])
def test_requests_go_there_and_back(client_id: str | None) -> None:
    for api_key in APIS:
        cls = request_class(api_key)
        for version in (cls.MIN_VERSION, cls.MAX_VERSION):
            frame = encode_request(cls(), version, -7, client_id)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header = decode_request_header(frame[4:])
            size = 8 + 2 + len((client_id or "").encode()) + (version >= cls.FLEXIBLE_FROM)
            assert header == RequestHeader(api_key, version, -7, client_id, size)
            assert cls.decode(frame, version, unbounded(), 4 + header.size) == cls.decode(
                cls().encode(version), version, unbounded()
            )


def test_responses_go_there_and_back() -> None:
    for api_key in APIS:
        cls = response_class(api_key)
        for version in (cls.MIN_VERSION, cls.MAX_VERSION):
            frame = encode_response(cls(), version, 2**31 - 1)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            assert frame[4:8] == b"\x7f\xff\xff\xff"
            size = response_header_size(api_key, version, frame[4:])
            flexible = version >= cls.FLEXIBLE_FROM and api_key != ApiKey.API_VERSIONS
            assert size == (5 if flexible else 4)
            assert cls.decode(frame, version, unbounded(), 4 + size) == cls.decode(
                cls().encode(version), version, unbounded()
            )


def test_an_old_metadata_request_as_it_is_on_the_wire() -> None:
    frame = bytes.fromhex("0003 0000 00000005 0003 617070 00000000")
    assert decode_request_header(frame) == RequestHeader(3, 0, 5, "app", 13)


def test_controlled_shutdown_0_has_no_client_id() -> None:
    assert decode_request_header(bytes.fromhex("0007 0000 00000005 00000001")) == RequestHeader(7, 0, 5, None, 8)


def test_tags_in_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000005 0001 61 01 05 02 0102 00")
    assert decode_request_header(frame) == RequestHeader(3, 9, 5, "a", 16)
    assert response_header_size(3, 9, bytes.fromhex("00000005 01 05 02 0102 00")) == 9


@pytest.mark.parametrize(
    "wire",
    [
        "",
        "0003",
        "0003 0000 000000",
        "0003 0000 00000005",
        "0003 0000 00000005 00",
        "0003 0000 00000005 0003 6170",
        "0003 0000 00000005 7fff 61",
        "0003 0000 00000005 0002 c328",
        "0003 0009 00000005 0001 61",
        "0003 0009 00000005 0001 61 01",
        "0003 0009 00000005 0001 61 ffffffff0f",
        "0003 0009 00000005 0001 61 ffffffffff",
        "0003 0009 00000005 0005 61",
    ],
)
def test_a_cut_or_damaged_request_header_is_refused(wire: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request_header(bytes.fromhex(wire))


@pytest.mark.parametrize("wire", ["", "000000", "00000005", "00000005 01", "00000005 01 05 02 01"])
def test_a_cut_response_header_is_refused(wire: str) -> None:
    with pytest.raises(RemoteProtocolError):
        response_header_size(ApiKey.METADATA, 9, bytes.fromhex(wire))
    if len(bytes.fromhex(wire)) < 4:
        with pytest.raises(RemoteProtocolError):
            response_header_size(ApiKey.METADATA, 0, bytes.fromhex(wire))


def test_random_bytes_give_a_header_or_the_protocol_error() -> None:
    rng = random.Random(1)
    for _ in range(5000):
        frame = bytes([0, rng.randrange(80), 0, rng.randrange(14)]) + rng.randbytes(rng.randrange(40))
        try:
            header = decode_request_header(frame)
        except RemoteProtocolError:
            continue
        assert header.size <= len(frame)


def test_what_a_header_cannot_say_is_refused() -> None:
    request = request_class(ApiKey.METADATA)()
    for correlation_id, client_id in ((2**31, "a"), (0, "x" * 32768), (0, "\ud800")):
        with pytest.raises(LocalProtocolError):
            encode_request(request, 1, correlation_id, client_id)
    with pytest.raises(LocalProtocolError):
        encode_request(request, 99, 0, "a")
    with pytest.raises(LocalProtocolError):
        encode_response(response_class(ApiKey.METADATA)(), 1, 2**31)
