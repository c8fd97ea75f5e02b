"""Non-blocking sockets."""

import socket

import pytest
import trio
import trio.testing

from kproxy.dedup.retry_rules import BROKEN_FOR_AT_MOST
from kproxy.net import socket_io
from kproxy.net.retry_ledger_keeper import _UNACKNOWLEDGED_MS
from kproxy.net.socket_io import SocketIO
from tests.net.byte_io import cut_off, read, sockets
from tests.net.harness import PATIENCE, eventually


def stalls(io: SocketIO) -> bool:
    return io.stalled_at is not None


async def test_buffers_arrive_in_order_however_many_and_however_slow_the_reader() -> None:
    one, two = sockets()
    pieces = [b"%06d" % number * (1 + number % 50) for number in range(3000)]
    whole = b"".join(pieces) + bytes(8_000_000)
    async with trio.open_nursery() as nursery:
        sent: list[int] = []

        async def send() -> None:
            sent.append(await one.send_all([*pieces, memoryview(bytes(8_000_000))]))

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert stalls(one)
        assert await read(two, len(whole)) == whole
    assert sent == [len(whole)]
    assert not stalls(one)
    one.close()
    two.close()


async def test_what_waits_to_be_written_of_a_shared_buffer_is_a_copy() -> None:
    one, two = sockets()
    shared = bytearray(b"a" * 8_000_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.send_shared, memoryview(shared))
        await trio.testing.wait_all_tasks_blocked(0.01)
        shared[:] = b"b" * len(shared)
        assert set(await read(two, len(shared))) == {ord("a")}
    one.close()
    two.close()


async def test_reading_into_two_buffers_fills_the_first_one_first() -> None:
    one, two = sockets()
    await one.send_all([b"abcdef"])
    await two.readable()
    first, second = memoryview(bytearray(4)), memoryview(bytearray(4))
    assert two.receive_now([first, second]) == 6
    assert (bytes(first), bytes(second[:2])) == (b"abcd", b"ef")
    assert two.receive_now([first]) is None
    one.close()
    await two.readable()
    assert two.receive_now([first]) == 0
    two.close()


async def test_closing_wakes_who_reads_and_who_writes_and_may_be_done_twice() -> None:
    one, two = sockets()

    async def ended(wait: trio.Event) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await one.readable()
        wait.set()

    async def cut() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await one.send_all([bytes(8_000_000)])

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ended, trio.Event())
            nursery.start_soon(cut)
            await trio.testing.wait_all_tasks_blocked(0.01)
            one.close()
            one.close()
    assert one.closed
    assert one.peer == "?"
    two.close()


async def test_what_the_peers_kernel_has_is_acknowledged_and_the_rest_is_not() -> None:
    one, two = sockets()
    await one.send_all([b"abc"])
    await two.readable()
    await eventually(lambda: one.unacked() == 0)
    buffers = [bytes(8_000_000)]
    sent = one.send_at_once(list(buffers))
    assert 0 < one.unacked() <= sent
    two.close()  # unread data: a reset
    await one.readable()
    left = one.unacked()
    assert left > 0
    one.close()
    assert one.unacked() == left


async def test_what_was_in_flight_when_this_end_closed_is_not_acknowledged() -> None:
    one, two = sockets()
    one.send_at_once([bytes(8_000_000)])
    assert one.unacked() > 0
    one.close()
    assert one.unacked() > 0
    two.close()


@pytest.mark.parametrize("limit_ms", [None, 500])
async def test_a_connection_to_a_peer_that_acknowledges_nothing_ends_after_the_limit(limit_ms: int | None) -> None:
    one, two = sockets()
    if limit_ms is not None:
        one.limit_unacknowledged(limit_ms)
    cut_off(two._sock)
    await one.send_all([b"response"])
    with trio.move_on_after(PATIENCE if limit_ms is not None else 3) as scope:
        await one.readable()
    assert scope.cancelled_caught == (limit_ms is None), "ESTABLISHED for as long as the kernel repeats"
    assert one.peer_closed() == (limit_ms is not None)
    assert not one.closed_well()
    assert one.unacked() == len(b"response")
    one.close()
    assert one.unacked() == len(b"response")
    two.close()
    one.limit_unacknowledged(1)


@pytest.mark.parametrize("reset", [False, True])
async def test_the_peers_end_is_seen_past_data_that_is_not_read_yet(reset: bool) -> None:
    one, two = sockets()
    if reset:
        await one.send_all([b"never read"])
        await two.readable()
    await two.send_all([b"read later"])
    assert not one.peer_closed()
    assert not two.peer_closed()
    two.close()
    await eventually(one.peer_closed)
    assert one.peer_host == "127.0.0.1"
    assert two.peer_closed()
    one.close()
    assert one.peer_closed()


def test_its_turn_ends_after_some_reads_without_a_wait() -> None:
    one, two = sockets()
    turns = [one.should_yield() for _ in range(64)]
    assert 0 < sum(turns) < 16
    for io in (one, two):
        io._sock.close()


async def test_a_caller_after_the_end_learns_of_it() -> None:
    """A task may close what another one is about to read from."""
    one, two = sockets()
    one.close()
    with pytest.raises(trio.ClosedResourceError):
        await one.readable()
    two.close()


def test_a_broken_connection_is_noticed_as_soon_as_the_rules_of_retries_take_for_granted() -> None:
    times = dict(socket_io._KEEPALIVE)
    noticed = times[socket.TCP_KEEPIDLE] + times[socket.TCP_KEEPINTVL] * times[socket.TCP_KEEPCNT]
    assert max(noticed, _UNACKNOWLEDGED_MS / 1000) <= BROKEN_FOR_AT_MOST
