"""Attacks on what speaks HTTP, the pages for operators and the webhook; and on the files that a process may open."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPException
from itertools import cycle, islice
from typing import Final

from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.header import encode_request
from verification.hostile.attacks import HOSTILE, MIB, ask
from verification.hostile.target import Besieged, BesiegedWebhook, Target

#: A host has many addresses, and so may exceed what is allowed to one.
_ADDRESSES: Final = tuple(f"127.0.0.{number}" for number in range(2, 14))
_HALF: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-More: " + b"x" * 2_000
_PATIENCE_SECONDS: Final = 20.0


def half_heads(proxy: Besieged) -> str:
    """3,000 connections that send a part of a request's head, and wait."""
    with ExitStack() as stack:
        for address in islice(cycle(_ADDRESSES), 3_000):
            _send(stack.enter_context(proxy.connect_http(address)), _HALF)
        return f"a new one served after {_served_after(proxy):.1f} s"


def metrics_at_once(proxy: Besieged) -> str:
    """300 connections that ask for the metrics in one moment."""
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with ExitStack() as stack:
        senders = [stack.enter_context(proxy.connect_http(address)) for address in islice(cycle(_ADDRESSES), 300)]
        for sock in senders:
            _send(sock, head)
        return f"{sum(_whole(sock).startswith(b'HTTP/1.1 200') for sock in senders)} answered"


def long_numbers(proxy: Besieged) -> str:
    """Host headers with a port of 5,000 digits, and Accept headers with a version of as many."""
    end, digits = b"\r\nConnection: close\r\n\r\n", b"1" * 5_000
    host = b"GET / HTTP/1.1\r\nHost: localhost:" + digits + end
    accept = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: application/openmetrics-text;version=" + digits + end
    found = set()
    for head in [host, accept] * 10:
        with proxy.connect_http(HOSTILE) as sock:
            _send(sock, head)
            found.add(_whole(sock)[9:12].decode())
    return f"answered {', '.join(sorted(found))}"


def files_of_clients(proxy: Besieged) -> str:
    """1,000 connections of Kafka clients, more than kproxy may open files; one was there before."""
    request = encode_request(MetadataRequest(topics=None), 1, 1, "x")
    return _files_taken(proxy, lambda: proxy.connect(HOSTILE), request)


def files_of_pages(proxy: Besieged) -> str:
    """1,000 connections to the pages, more than kproxy may open files; a Kafka client was there before."""
    addresses = cycle(_ADDRESSES)
    return _files_taken(proxy, lambda: proxy.connect_http(next(addresses)), _HALF)


def _files_taken(proxy: Besieged, connect: Callable[[], socket.socket], data: bytes) -> str:
    request = encode_request(MetadataRequest(topics=None), 1, 1, "honest")
    with ExitStack() as stack:
        honest = stack.enter_context(proxy.connect())
        time.sleep(0.1)  # it has been accepted
        for _ in range(1_000):
            _send(stack.enter_context(connect()), data)
        began = time.monotonic()
        honest.settimeout(_PATIENCE_SECONDS)
        right = bool(_asked(honest, request))
        proxy.waits.append(time.monotonic() - began)
        began = time.monotonic()
        with proxy.connect() as newcomer:  # is served, or closed: it does not hang
            newcomer.settimeout(_PATIENCE_SECONDS)
            told = _asked(newcomer, request)
            proxy.waits.append(time.monotonic() - began)
    first, second = proxy.waits[-2:]
    there, new = "answered" if right else "not answered", "answered" if told else "closed"
    return f"{there} after {first:.1f} s, a new one {new} after {second:.1f} s"


def slow_reviews(proxy: BesiegedWebhook) -> str:
    """80 reviews whose bodies do not end."""
    head = b"POST /pods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    with ExitStack() as stack:
        for sock in _opened(proxy, [HOSTILE] * 80):
            _send(stack.enter_context(sock), head)
        return f"a new one served after {_served_after(proxy):.1f} s"


def long_reviews(proxy: BesiegedWebhook) -> str:
    """Eight reviews of 4 MB, and eight of 1 MB, that are made of small objects."""
    found: list[str] = []
    for size in (4 * MIB, MIB):
        body = b'{"a":[' + b"[],{}," * ((size - 20) // 6) + b"1]}"
        head = b"POST /pods HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        with ExitStack() as stack, ThreadPoolExecutor(8) as threads:
            senders = [stack.enter_context(sock) for sock in _opened(proxy, [HOSTILE] * 8)]
            answers = list(threads.map(_asked_over, senders, [head % len(body) + body] * 8))
            found += sorted({answer[9:12].decode() or "closed" for answer in answers})
    return f"answered {', '.join(found)}"


def half_reviews(proxy: BesiegedWebhook) -> str:
    """1,000 connections that do not shake hands, and 600 that do, and send a part of a request's head."""
    with ExitStack() as stack:
        for address in islice(cycle(_ADDRESSES), 1_000):
            stack.enter_context(proxy.connect(address))
        for sock in _opened(proxy, list(islice(cycle(_ADDRESSES), 600))):
            _send(stack.enter_context(sock), _HALF)
        return f"a new one served after {_served_after(proxy):.1f} s"


def _opened(proxy: BesiegedWebhook, addresses: Sequence[str]) -> Iterator[ssl.SSLSocket]:
    """Connections whose handshake is done; those that are refused are left out."""
    for address in addresses:
        with suppress(OSError):
            yield proxy.connect_tls(address)


def _served_after(proxy: Target) -> float:
    """Seconds until a new honest client is served, which tries again where it is refused; they count as its wait."""
    began = time.monotonic()
    connection = proxy.honest_connection(_PATIENCE_SECONDS)
    while (waited := time.monotonic() - began) < 3 * _PATIENCE_SECONDS:
        try:
            connection.request(*proxy.honest_request)
            connection.getresponse().read()
            break
        except (OSError, HTTPException):
            time.sleep(0.01)
        finally:
            connection.close()
    waited = time.monotonic() - began
    proxy.waits.append(waited)
    return waited


def _asked(sock: socket.socket, data: bytes) -> bytes:
    """The response of a Kafka listener; empty if there is none."""
    return ask(sock, [data], _PATIENCE_SECONDS)[0]


def _asked_over(sock: socket.socket, data: bytes) -> bytes:
    _send(sock, data)
    return _whole(sock)


def _whole(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    with suppress(OSError):
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def _send(sock: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # refused, or ended meanwhile
        sock.sendall(data)
