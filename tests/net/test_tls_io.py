"""TLS over non-blocking sockets."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from kproxy.net.tls_context import TlsFiles, client_context, server_context
from kproxy.net.tls_io import TlsIO
from tests.net.byte_io import read, sockets
from tests.net.certificates import Authority
from tests.net.harness import eventually

WHOLE = bytes(range(256)) * 40_000


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return Authority(tmp_path).issue("kafka.test")


@asynccontextmanager
async def pair(files: TlsFiles) -> AsyncIterator[tuple[TlsIO, TlsIO]]:
    """Client and server, after the handshake."""
    near, far = sockets()
    scratch = memoryview(bytearray(65536))
    one = TlsIO(near, client_context(files, checks_name=True), scratch, server_name="kafka.test")
    two = TlsIO(far, server_context(files, "none"), scratch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.handshake)
        nursery.start_soon(two.handshake)
    try:
        yield one, two
    finally:
        one.close()
        two.close()


async def end(io: TlsIO) -> int | None:
    with trio.fail_after(120):
        while True:
            got = io.receive_now([memoryview(bytearray(10))])
            if got is not None:
                return got
            await io.readable()


@pytest.mark.parametrize("size", [10, 16_384, 300_000])
async def test_buffers_arrive_in_order_whatever_their_sizes_and_the_readers(files: TlsFiles, size: int) -> None:
    pieces = [b"%06d" % number * (1 + number % 50) for number in range(200)]
    whole = b"".join(pieces) + (WHOLE if size > 10 else b"")
    async with pair(files) as (one, two), trio.open_nursery() as nursery:
        for source, sink in ((one, two), (two, one)):
            sent: list[int] = []

            async def send(source: TlsIO = source, sent: list[int] = sent) -> None:
                sent.append(await source.send_all([*pieces, b"", memoryview(whole)[len(b"".join(pieces)) :]]))

            nursery.start_soon(send)
            assert await read(sink, len(whole), size, seconds=20) == whole
            await eventually(lambda sent=sent: sent == [len(whole)])
            await eventually(lambda source=source: source.unacked() == 0)


async def test_reading_into_two_buffers_fills_the_first_one_first(files: TlsFiles) -> None:
    async with pair(files) as (one, two):
        await one.send_all([b"abc", b"def"])
        await eventually(two.pending)
        first, second = memoryview(bytearray(4)), memoryview(bytearray(4))
        with trio.fail_after(120):
            while (got := two.receive_now([first, second])) is None:
                await two.readable()
        assert (got, bytes(first), bytes(second[:2])) == (6, b"abcd", b"ef")
        assert two.receive_now([first]) is None
        assert not two.pending()


async def test_content_that_is_there_already_is_readable_though_the_socket_is_empty(files: TlsFiles) -> None:
    async with pair(files) as (one, two):
        await one.send_all([b"x" * 1000])
        assert await read(two, 10, 10, seconds=20) == b"x" * 10
        with trio.fail_after(120):
            await two.readable()
        assert await read(two, 990, 990, seconds=20) == b"x" * 990


async def test_a_writer_waits_for_a_slow_reader_and_what_was_shared_is_a_copy(files: TlsFiles) -> None:
    shared = bytearray(b"a" * 8_000_000)
    async with pair(files) as (one, two), trio.open_nursery() as nursery:
        nursery.start_soon(one.send_shared, memoryview(shared))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert one.stalled_at is not None
        shared[:] = b"b" * len(shared)
        assert set(await read(two, len(shared), seconds=20)) == {ord("a")}
        await eventually(lambda: one.stalled_at is None)


async def test_what_goes_at_once_leaves_the_rest_in_the_list_and_nothing_is_lost(files: TlsFiles) -> None:
    async with pair(files) as (one, two), trio.open_nursery() as nursery:
        buffers: list[bytes | bytearray | memoryview] = [b"head", WHOLE]
        size = 4 + len(WHOLE)
        at_once = one.send_at_once(buffers)
        assert 0 < at_once < size
        assert buffers
        later: list[int] = []

        async def rest() -> None:
            later.append(await one.send_all(buffers))

        nursery.start_soon(rest)
        assert await read(two, size, seconds=20) == b"head" + WHOLE
        await eventually(lambda: later == [size - at_once])


async def test_a_list_is_never_empty_while_something_encrypted_waits(files: TlsFiles) -> None:
    """Who calls looks at the list to know whether there is a write to do."""
    async with pair(files) as (one, two), trio.open_nursery() as nursery:
        total = 0
        while True:
            buffers: list[bytes | bytearray | memoryview] = [bytes(16_384)]
            total += one.send_at_once(buffers)
            if buffers:
                break
        total += sum(map(len, buffers))
        nursery.start_soon(one.send_all, buffers)
        assert len(await read(two, total, seconds=20)) == total


async def test_bytes_count_as_acknowledged_with_whole_records_only(files: TlsFiles) -> None:
    async with pair(files) as (one, two), trio.open_nursery() as nursery:
        nursery.start_soon(one.send_all, [WHOLE])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert one.stalled_at is not None
        assert one.unacked() == 0  # nothing of it was reported as written yet
        await read(two, len(WHOLE), seconds=20)
    buffers: list[bytes | bytearray | memoryview] = []
    async with pair(files) as (one, two):
        written = 0
        while not buffers:
            buffers = [bytes(10_000)]
            written += one.send_at_once(buffers)
        had = written - one.unacked()
        assert 0 <= had <= written
        assert had % 10_000 == 0
        assert one.unacked() > 0


async def test_the_end_is_the_end_with_a_farewell_and_without(files: TlsFiles) -> None:
    async with pair(files) as (one, two):
        await one.send_all([b"bye"])
        one.close()
        one.close()
        assert await read(two, 3, seconds=20) == b"bye"
        assert await end(two) == 0
        await eventually(two.peer_closed)
        assert two.closed_well()
        with pytest.raises(trio.ClosedResourceError):
            await one.readable()
    async with pair(files) as (one, two):
        one._inner.close()
        assert await end(two) == 0
        assert one.closed


async def test_garbage_in_the_middle_is_an_error(files: TlsFiles) -> None:
    async with pair(files) as (one, two):
        await one._inner.send_all([b"\x17\x03\x03\x00\x20" + bytes(32)])
        await two._inner.readable()
        with pytest.raises(OSError, match="BAD_RECORD_MAC"):
            two.receive_now([memoryview(bytearray(10))])


async def test_a_server_that_is_read_goes_through_the_handshake_and_tells_the_name(files: TlsFiles) -> None:
    near, far = sockets()
    scratch = memoryview(bytearray(65536))
    one = TlsIO(near, client_context(files, checks_name=True), scratch, server_name="kafka.test")
    two = TlsIO(far, server_context(files, "none"), scratch)
    assert two.server_name is None
    with pytest.raises(OSError, match="handshake"):
        await two.send_all([b"too early"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.handshake)
        nursery.start_soon(read, two, 5)
        await eventually(lambda: two.server_name == "kafka.test")
        await eventually(lambda: one._done)
        await one.send_all([b"hello"])
    one.close()
    two.close()


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10" + bytes(16), b"\x16\x03\x01\xff\xff" + b"x" * 99]
)
async def test_a_client_without_tls_is_refused(files: TlsFiles, sent: bytes) -> None:
    near, far = sockets()
    said: list[str] = []
    two = TlsIO(far, server_context(files, "none"), memoryview(bytearray(65536)), failed=said.append)
    await near.send_all([sent])
    with pytest.raises(ssl.SSLError), trio.fail_after(120):
        await two.handshake()
    assert len(said) == 1
    near.close()
    two.close()


async def test_who_goes_in_the_handshake_is_an_error(files: TlsFiles) -> None:
    near, far = sockets()
    two = TlsIO(far, server_context(files, "none"), memoryview(bytearray(65536)))
    near.close()
    with pytest.raises(OSError, match="EOF"), trio.fail_after(120):
        await two.handshake()
    two.close()
