"""The raw test connection against a listener that says what the test wants."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from kproxy.codec._generated.fetch import FetchResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.header import decode_request_header, encode_response
from kproxy.testing.raw_connection import RawConnection

VERSION = 12
TIMEOUT = 5.0


@contextlib.contextmanager
def connected(timeout: float = TIMEOUT) -> Iterator[tuple[RawConnection, socket.socket]]:
    """A connection and the broker's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        ours = stack.enter_context(RawConnection("127.0.0.1", port, client_id="me", timeout=timeout))
        theirs = stack.enter_context(server.accept()[0])
        theirs.settimeout(TIMEOUT)
        yield ours, theirs


def read_frame(stream: socket.socket) -> bytes:
    with stream.makefile("rb") as file:
        (size,) = struct.unpack(">i", file.read(4))
        return file.read(size)


def test_a_call_returns_the_decoded_answer() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(encode_response(MetadataResponse(controller_id=5), VERSION, 1))
        assert ours.call(MetadataRequest(topics=None), VERSION, MetadataResponse).controller_id == 5


def test_requests_carry_the_client_id_and_count_up() -> None:
    with connected() as (ours, theirs):
        headers = []
        for _ in range(2):
            ours.send(MetadataRequest(topics=None), VERSION)
            headers.append(decode_request_header(read_frame(theirs)))
        assert [(header.api_version, header.correlation_id, header.client_id) for header in headers] == [
            (VERSION, 1, "me"),
            (VERSION, 2, "me"),
        ]


def test_an_answer_of_another_class_is_a_type_error() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(encode_response(MetadataResponse(), VERSION, 1))
        with pytest.raises(TypeError, match="FetchResponse expected, MetadataResponse came"):
            ours.call(MetadataRequest(topics=None), VERSION, FetchResponse)


def test_plain_bytes_go_and_come_unchanged() -> None:
    with connected() as (ours, theirs):
        ours.send_bytes(b"\0\0\0\2hi")
        assert read_frame(theirs) == b"hi"
        theirs.sendall(b"\0\0\0\3yes\0\0\0\0")
        assert (ours.receive_bytes(), ours.receive_bytes()) == (b"yes", b"")


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5hal"])
def test_a_broker_that_hangs_up_is_a_connection_error(sent: bytes) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="closed the connection"):
            ours.receive_bytes()


def test_a_broker_that_says_nothing_is_a_time_out() -> None:
    with connected(timeout=0.05) as (ours, _), pytest.raises(TimeoutError):
        ours.receive_bytes()


def test_a_connection_is_idle_while_open_with_nothing_to_read() -> None:
    with connected() as (ours, theirs):
        assert ours.idle()
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            ours.receive_bytes()
        assert not ours.idle()
        ours.close()
        assert not ours.idle()
