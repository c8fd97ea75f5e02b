"""PROXY protocol headers, as balancers write them and as nobody should."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.codec.proxy_header import START, Ends, body_size, is_line, read_binary, read_line
from kproxy.errors import RemoteProtocolError

IPV4 = bytes((192, 0, 2, 7)) + bytes((10, 0, 0, 1)) + struct.pack(">HH", 50_123, 19_092)
IPV6 = bytes(15) + b"\x07" + bytes(15) + b"\x01" + struct.pack(">HH", 50_123, 19_092)


def fixed(command: int = 0x21, family: int = 0x11, size: int = len(IPV4)) -> bytes:
    return struct.pack(">BBH", command, family, size)


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 50123 19092\r\n", Ends("192.0.2.7", 50_123, "10.0.0.1")),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 50123 19092\r\n", Ends("2001:db8::7", 50_123, "2001:db8::1")),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    ],
)
def test_a_line(line: bytes, ends: Ends | None) -> None:
    assert is_line(line[:START])
    assert read_line(line) == ends


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 50123\r\n",
        b"PROXY TCP5 192.0.2.7 10.0.0.1 50123 19092\r\n",
        b"PROXY TCP4 192.0.2.777 10.0.0.1 50123 19092\r\n",
        b"PROXY TCP4 example.org 10.0.0.1 50123 19092\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 x 19092\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 19092\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 50123 19092\r\n",
        b"PROXY TCP6 192.0.2.7 10.0.0.1 50123 19092\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 50123 19092",
        b"PROXY UNKNOWN" + b" x" * 47,
        b"PROXY \xff\xfe \r\n",
    ],
)
def test_a_malformed_line(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_line(line)


def test_version_2() -> None:
    assert not is_line(b"\r\n\r\n\0\r\nQUIT\n")
    assert body_size(fixed()) == len(IPV4)
    assert read_binary(fixed(), IPV4) == Ends("192.0.2.7", 50_123, "10.0.0.1")
    assert read_binary(fixed(), IPV4 + b"\x03\0\x04abcd") == Ends("192.0.2.7", 50_123, "10.0.0.1")
    assert read_binary(fixed(family=0x21), IPV6) == Ends("::7", 50_123, "::1")


def test_a_balancer_that_speaks_for_itself_names_nobody() -> None:
    assert read_binary(fixed(0x20, 0, 0), b"") is None
    assert read_binary(fixed(family=0x31), bytes(216)) is None


@pytest.mark.parametrize("head", [fixed(0x11), fixed(0x22), fixed(size=4097)])
def test_another_version_or_command_or_too_much(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        body_size(head)


@pytest.mark.parametrize("start", [b"\0\0\0\x20\0\x12\0\0\0\0\0\1", b"GET / HTTP/1", b"PROXY\r\n\r\n\r\n\r\n"])
def test_a_connection_without_a_header(start: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        is_line(start)


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=300), st.binary(max_size=107))
def test_no_bytes_raise_anything_else(head: bytes, body: bytes, line: bytes) -> None:
    for read in (lambda: read_binary(head, body), lambda: read_line(b"PROXY " + line), lambda: body_size(head)):
        with contextlib.suppress(RemoteProtocolError):
            read()
