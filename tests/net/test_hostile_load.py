"""Clients that take much and give nothing, against kproxy as a process: memory and file descriptors stay bounded.

While each of them runs, and after it, another client writes and reads.
"""

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kproxy.codec.batch import build_batch
from kproxy.codec.header import encode_request
from tests.codec.message_sets import entry, wrapper
from tests.net.harness import fetch, records
from tests.net.witness import request
from verification.hostile.target import Besieged, besieged, wait_for

pytestmark = pytest.mark.long

MIB = 1 << 20
#: The default.
BUFFER_MEMORY = 128 * MIB
#: What an idle connection costs: its task, its session and the kernel's bookkeeping in this process.
CONNECTION = 16 * 1024
#: What the allocator keeps, and one conversion or read on top of the buffers.
SLACK = 64 * MIB
#: Connections of kproxy's own to brokers, which it may open and close at any time.
_OWN_FILES = 10
#: Files that this test has open beside its connections.
_OTHER_FILES = 200


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("kproxy")) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_is_left(proxy: Besieged) -> Iterator[None]:
    idle = proxy.open_files
    yield
    wait_for(lambda: proxy.metric("kproxy_connections") == 0 and proxy.metric("kproxy_buffered_bytes") == 0)
    wait_for(lambda: proxy.open_files <= idle + _OWN_FILES)
    proxy.serves_others()


@contextmanager
def connections(proxy: Besieged, count: int, send: bytes) -> Iterator[None]:
    """So many connections, all of them accepted, that send this and read nothing."""
    with ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(proxy.connect())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(0.05)
            _send(sock, send)
        wait_for(lambda: proxy.metric("kproxy_connections") >= count)
        yield


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except TimeoutError:  # kproxy reads no further
        return


def grown(proxy: Besieged) -> Callable[[], int]:
    """Bytes by which the memory has grown since now."""
    before = proxy.memory
    return lambda: proxy.memory - before


def test_a_thousand_claims_of_100_mib(proxy: Besieged) -> None:
    growth = grown(proxy)
    with connections(proxy, 1000, struct.pack(">i", 100 * MIB) + bytes(1024)):
        wait_for(lambda: proxy.metric("kproxy_buffered_bytes") >= 1000 * 1028)
        assert proxy.metric("kproxy_buffered_bytes") <= 1000 * 2100
        assert growth() < 1000 * CONNECTION + 8 * MIB
        proxy.serves_others()


def test_five_thousand_idle_connections(proxy: Besieged, record_property: Callable[[str, object], None]) -> None:
    """As many as the limit on open files leaves to this process and to kproxy, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000
    if soft < wanted + _OTHER_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + _OTHER_FILES), hard))
    count = min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)
    record_property("idle connections", count)
    growth = grown(proxy)
    with connections(proxy, count, b""):
        assert proxy.open_files < count + _OTHER_FILES
        assert growth() < count * CONNECTION + 8 * MIB
        proxy.serves_others()


@pytest.mark.parametrize("version", [2, 11])
def test_consumers_that_never_read(proxy: Besieged, version: int) -> None:
    """In v2 each response is converted, and held whole until it is read."""
    with proxy.client() as client:
        for _ in range(16):
            assert client.produce("t", 0, build_batch(records(bytes(900_000)))).error_code == 0
    growth = grown(proxy)
    asked = encode_request(fetch("t", max_bytes=16 * MIB), version, 1, "deaf")
    with connections(proxy, 15, asked * 20):
        proxy.serves_others()
        assert proxy.metric("kproxy_buffered_bytes") <= BUFFER_MEMORY
        assert growth() < 3 * BUFFER_MEMORY + SLACK


def test_a_flood_of_small_requests_whose_answers_nobody_reads(proxy: Besieged) -> None:
    growth = grown(proxy)
    with connections(proxy, 10, struct.pack(">ihhih", 10, 18, 0, 1, -1) * 100_000):
        proxy.serves_others()
        assert growth() < SLACK


def test_bombs_from_many_at_once(proxy: Besieged) -> None:
    growth = grown(proxy)
    zeros = wrapper(1, [entry(0, None, bytes(30 * MIB))])
    beyond = wrapper(1, [bytes(70 * MIB)])
    with connections(proxy, 3, encode_request(request(beyond, zeros), 2, 1, "bomb")):
        proxy.serves_others()
    wait_for(lambda: proxy.metric("kproxy_connections") == 0)
    assert growth() < 4 * 70 * MIB + SLACK


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_half_requests_do_not_keep_a_larger_one_waiting(proxy: Besieged, address: str) -> None:
    """Once it waited for as long as they had time to end, 29 s; now for few seconds, from another address for none."""
    half = struct.pack(">ihhih", 8 * MIB, 0, 8, 1, -1) + bytes(7 * MIB)
    with ExitStack() as stack:
        for _ in range(16):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 20, (address, 0)))
            sock.settimeout(0.3)
            _send(sock, half)
        with proxy.client() as client:
            began = time.monotonic()
            assert client.produce("t", 0, build_batch(records(bytes(300_000)))).error_code == 0
            assert time.monotonic() - began < 25
        assert proxy.metric("kproxy_buffered_bytes") <= BUFFER_MEMORY


def test_half_requests_of_many_leave_room_to_others(proxy: Besieged) -> None:
    with connections(proxy, 20, struct.pack(">i", 8 * MIB) + bytes(7 * MIB)):
        wait_for(lambda: proxy.metric("kproxy_buffered_bytes") > BUFFER_MEMORY // 4)
        proxy.serves_others()
        assert proxy.metric("kproxy_buffered_bytes") <= BUFFER_MEMORY


@pytest.mark.parametrize("size", [60 * MIB, 7 * MIB])
def test_half_frames_are_freed_when_their_connections_end(proxy: Besieged, size: int) -> None:
    growth = grown(proxy)
    for _ in range(14):
        with connections(proxy, 1, struct.pack(">ihhih", size + 4 * MIB, 0, 8, 1, -1) + bytes(size)):
            pass
        wait_for(lambda: proxy.metric("kproxy_connections") == 0)
    wait_for(lambda: growth() < 10 * MIB)
