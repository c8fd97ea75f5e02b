"""A login that is renewed on a connection in use, with the broker played by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from kproxy.codec._generated.sasl_authenticate import SaslAuthenticateResponse
from kproxy.codec._generated.sasl_handshake import SaslHandshakeResponse
from kproxy.codec.header import encode_response
from kproxy.codec.messages import ErrorCode
from kproxy.net.broker_sasl.renewing_io import RenewingIO
from kproxy.net.network import ByteIO
from kproxy.net.socket_io import SocketIO
from kproxy.proxy.broker_login.broker_mechanisms import Plain
from kproxy.proxy.broker_login.login import Login, LoginFrames
from kproxy.proxy.slots import Buffer
from tests.net.byte_io import read, sockets

pytestmark = pytest.mark.idle_clock

OWN = -7
HANDSHAKE = 17
AUTHENTICATE = 36
HOUR_MS = 3_600_000


@dataclass
class Renewals:
    """Logins with a password; how they ended."""

    said: list[object] = field(default_factory=list)
    missing: bool = False

    async def begin(self) -> LoginFrames:
        await trio.lowlevel.checkpoint()
        if self.missing:
            raise OSError("no password")
        return LoginFrames(Login(Plain("alice", "secret"), "'alice'", "the password", 1), OWN)

    def succeeded(self) -> None:
        self.said.append("succeeded")

    def failed(self, error: Exception) -> None:
        self.said.append(str(error))


@dataclass
class Broker:
    """The other end."""

    io: SocketIO
    renewals: Renewals

    async def frame(self) -> bytes:
        size = int.from_bytes(await read(self.io, 4, 4), "big")
        return await read(self.io, size, size)

    async def key(self) -> int:
        """The API key of the next request."""
        return int.from_bytes((await self.frame())[:2], "big")

    async def handshake(self, *beside: bytes) -> None:
        """Answers SaslHandshake, after others' responses."""
        assert await self.key() == HANDSHAKE
        answer = encode_response(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, OWN)
        await self.io.send_all([*beside, answer])

    async def authenticate(self, *behind: bytes, error: int = 0, lifetime_ms: int = HOUR_MS) -> None:
        """Answers SaslAuthenticate, before others' answers."""
        assert await self.key() == AUTHENTICATE
        said = SaslAuthenticateResponse(error, None, b"", lifetime_ms)
        await self.io.send_all([encode_response(said, 1, OWN), *behind])


def frame(text: bytes) -> bytes:
    """A request or a response of the connection's user."""
    return (len(text) + 4).to_bytes(4, "big") + b"\0\0\0\1" + text


def request(text: bytes) -> list[Buffer]:
    """What a sender hands over."""
    return [frame(text)]


@asynccontextmanager
async def connected(
    lifetime_ms: int = 0, timeout_ms: int = 5000, *, due: bool = True
) -> AsyncIterator[tuple[RenewingIO, Broker]]:
    """The two ends; with ``due`` the login is to be renewed now, and lasts for another hour."""
    near, far = sockets()
    renewals = Renewals()
    io = RenewingIO(near, renewals, lifetime_ms or HOUR_MS, timeout_ms)
    if due and not lifetime_ms:
        io._due = 0.0  # as if most of an hour had gone by
    try:
        with trio.fail_after(120):
            yield io, Broker(far, renewals)
    finally:
        near.close()
        far.close()


async def test_requests_wait_and_answers_continue() -> None:
    async with connected() as (io, broker), trio.open_nursery() as nursery:
        assert io.send_at_once([frame(b"q1")]) == 0
        nursery.start_soon(io.send_all, request(b"q1"))
        got = b""

        async def take() -> None:
            nonlocal got
            got = await read(io, 3 * 10, 7 + 64)

        nursery.start_soon(take)
        await broker.handshake(frame(b"a1"))
        await broker.authenticate(frame(b"a2"), frame(b"a3"))
        assert await broker.frame() == frame(b"q1")[4:]
        await trio.testing.wait_all_tasks_blocked()
        assert got == frame(b"a1") + frame(b"a2") + frame(b"a3")
        assert broker.renewals.said == ["succeeded"]
        assert io.send_at_once([frame(b"q2")]) == 10


async def test_a_sender_that_nobody_reads_beside_reads_itself_and_keeps_what_is_not_its_own() -> None:
    async with connected() as (io, broker), trio.open_nursery() as nursery:
        nursery.start_soon(io.send_all, request(b"q"))
        await broker.handshake(frame(b"a1"))
        await broker.authenticate(frame(b"a2"))
        assert await broker.frame() == frame(b"q")[4:]
        assert io.pending()
        assert await read(io, 20, 9) == frame(b"a1") + frame(b"a2")
        assert not io.pending()


async def test_a_reader_that_comes_takes_over() -> None:
    async with connected() as (io, broker), trio.open_nursery() as nursery:
        nursery.start_soon(io.send_all, request(b"q"))
        await broker.handshake()
        await trio.testing.wait_all_tasks_blocked()
        got = b""

        async def take() -> None:
            nonlocal got
            got = await read(io, 10)

        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        await broker.authenticate(frame(b"a1"))
        assert await broker.frame() == frame(b"q")[4:]
        await trio.testing.wait_all_tasks_blocked()
        assert got == frame(b"a1")


async def test_a_request_that_is_half_written_is_finished_first() -> None:
    async with connected(due=False) as (io, broker), trio.open_nursery() as nursery:
        buffers: list[Buffer] = [frame(bytes(8 << 20))]
        size = len(buffers[0])
        sent = io.send_at_once(buffers)
        assert 0 < sent < size
        io._due = 0.0
        assert sent + io.send_at_once(buffers) < size  # by now the kernel may take more
        nursery.start_soon(io.send_all, buffers)
        assert len(await read(broker.io, size, 1 << 20)) == size
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(io.send_all, request(b"q"))
        await broker.handshake()
        await broker.authenticate()
        assert await broker.frame() == frame(b"q")[4:]


async def test_who_only_waits_to_read_renews_it_when_it_is_time() -> None:
    async with connected(lifetime_ms=50) as (io, broker), trio.open_nursery() as nursery:

        async def wait() -> None:
            assert await read(io, 9) == frame(b"a")

        nursery.start_soon(wait)
        for _ in range(3):
            await broker.handshake()
            await broker.authenticate(lifetime_ms=50)
        await broker.handshake()
        await broker.authenticate(frame(b"a"), lifetime_ms=0)


async def test_a_refusal_ends_the_connection_for_both() -> None:
    async with connected() as (io, broker), trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(OSError, match="closed"):
                await io.send_all([frame(b"q")])

        async def take() -> None:
            with pytest.raises(OSError, match="refused 'alice'"):
                await read(io, 10)

        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(send)
        await broker.handshake()
        await broker.authenticate(error=ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert io.closed
    assert len(broker.renewals.said) == 1


@pytest.mark.parametrize("reads", [False, True])
async def test_a_broker_that_does_not_continue_is_given_up(reads: bool) -> None:
    async with connected(timeout_ms=50) as (io, broker), trio.open_nursery() as nursery:

        async def take() -> None:
            with pytest.raises((OSError, trio.ClosedResourceError)):
                await read(io, 10)

        if reads:
            nursery.start_soon(take)
        with pytest.raises(OSError, match=r"did not renew|closed"):
            await io.send_all([frame(b"q")])
        assert broker.renewals.said == ["the broker did not renew a login within 0.05 s"]


async def test_the_end_of_the_connection_is_the_end_of_the_login() -> None:
    async with connected() as (io, broker), trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(OSError, match="closed the connection"):
                await io.send_all([frame(b"q")])

        nursery.start_soon(send)
        await broker.handshake()
        broker.io.close()


async def test_without_a_password_requests_continue_until_the_login_has_ended() -> None:
    async with connected() as (io, broker):
        broker.renewals.missing = True
        await io.send_all([frame(b"q")])
        assert await broker.frame() == frame(b"q")[4:]
        assert broker.renewals.said == ["no password"]
        io._due = io._ends = 0.0
        with pytest.raises(OSError, match="the login has expired, and could not be renewed"):
            await io.send_all([frame(b"q")])
        assert io.closed


async def test_what_is_no_answer_ends_the_connection() -> None:
    async with connected(due=False) as (io, broker):
        await broker.io.send_all([b"\xff\xff\xff\xff\0\0\0\0"])
        with pytest.raises(OSError, match="answer of -1 bytes"):
            await read(io, 1)
        assert io.closed


async def test_all_else_is_as_the_connection_below_has_it() -> None:
    async with connected(due=False) as (io, broker):
        inner = io._inner
        for name in sorted(name for name in dir(ByteIO) if not name.startswith("_")):
            assert hasattr(io, name)
        assert (io.peer, io.peer_host, io.local_host) == (inner.peer, inner.peer_host, inner.local_host)
        assert (io.server_name, io.peer_certificate, io.stalled_at) == (None, None, None)
        assert (io.unacked(), io.peer_closed(), io.closed_well(), io.should_yield()) == (0, False, False, False)
        assert await io.send_shared(memoryview(frame(b"q"))) == 9
        assert await broker.frame() == frame(b"q")[4:]
