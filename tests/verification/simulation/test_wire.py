"""One direction of a connection."""

from random import Random

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from verification.simulation.clock import VirtualClock
from verification.simulation.wire import FIN, RST, Pipe

LATENCY = 0.01


def pipes(clock: VirtualClock, capacity: int = 1000) -> tuple[Pipe, Pipe]:
    one, other = (Pipe(clock, 0, Random(7), LATENCY, capacity) for _ in range(2))
    one.back, other.back = other, one
    return one, other


@pytest.fixture
def clock(autojump_clock: MockClock) -> VirtualClock:
    return VirtualClock(autojump_clock)


def write(pipe: Pipe, data: bytes) -> int:
    return pipe.write(memoryview(data))


async def test_bytes_arrive_in_order_and_later(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(clock)
    for number in range(50):
        assert write(pipe, b"%02d" % number) == 2
    assert not pipe.inbox
    assert pipe.on_way == 100
    await trio.sleep(1)
    assert bytes(pipe.inbox) == b"".join(b"%02d" % number for number in range(50))
    assert pipe.on_way == 0


async def test_what_is_unread_takes_room(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(clock, capacity=10)
    assert write(pipe, bytes(16)) == 10
    assert write(pipe, b"x") == 0
    await trio.sleep(1)
    assert write(pipe, b"x") == 0
    buffer = memoryview(bytearray(4))
    assert pipe.read([buffer]) == 4
    assert write(pipe, bytes(16)) == 4


async def test_what_comes_before_the_reader_has_taken_all_is_unread_since_the_first_byte(
    clock: VirtualClock, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    pipe, _ = pipes(clock)
    assert pipe.unread_since(1.0) == 1.0
    nursery.start_soon(pipe.readers.park)
    await trio.testing.wait_all_tasks_blocked()
    for until in (1.0, 2.0):
        write(pipe, b"abc")
        await trio.sleep_until(until)
    first = pipe.unread_since(0.5)
    assert 0.0 < first < 0.5
    assert pipe.unread_since(2.0) == first
    pipe.read([memoryview(bytearray(5))])
    assert pipe.unread_since(2.0) == first
    pipe.read([memoryview(bytearray(5))])
    assert pipe.unread_since(3.0) == 3.0
    assert pipe.unread_since(1.5) == first


async def test_a_reader_that_does_not_wait_saw_last_that_nothing_was_there_when_it_had_taken_all(
    clock: VirtualClock, autojump_clock: MockClock
) -> None:
    pipe, _ = pipes(clock)
    write(pipe, b"abc")
    await trio.sleep_until(1.0)
    pipe.read([memoryview(bytearray(5))])
    await trio.sleep_until(3.0)
    write(pipe, b"abc")
    await trio.sleep_until(4.0)
    assert pipe.unread_since(4.0) == 1.0


@pytest.mark.parametrize("how", [FIN, RST])
async def test_the_end_comes_after_the_bytes(clock: VirtualClock, autojump_clock: MockClock, how: str) -> None:
    pipe, _ = pipes(clock)
    write(pipe, b"abc")
    pipe.end(how)
    assert not (pipe.ended or pipe.reset)
    await trio.sleep(1)
    assert pipe.inbox == b"abc"
    assert (pipe.ended, pipe.reset) == (how == FIN, how == RST)


async def test_the_end_of_an_empty_pipe_is_seen_after_its_latency_even_if_it_is_held_up(
    clock: VirtualClock,
    autojump_clock: MockClock,
) -> None:
    pipe, _ = pipes(clock)
    pipe.stall(100)
    pipe.end(FIN)
    assert not pipe.ended
    await trio.sleep(pipe.latency + 1e-9)
    assert pipe.ended


async def test_a_stall_holds_bytes_and_the_end_after_them(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(clock)
    write(pipe, b"abc")
    pipe.stall(5)
    pipe.end(FIN)
    await trio.sleep(4.9)
    assert not pipe.inbox
    await trio.sleep(0.2)
    assert pipe.inbox == b"abc"
    assert pipe.ended


async def test_what_vanishes_is_never_acknowledged(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(clock)
    pipe.vanish()
    write(pipe, b"abc")
    pipe.end(FIN)
    await trio.sleep(1)
    assert (pipe.inbox, pipe.ended, pipe.on_way) == (b"", False, 3)


async def test_bytes_for_a_closed_end_are_answered_by_a_reset(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, back = pipes(clock)
    pipe.gone = True
    write(pipe, b"abc")
    await trio.sleep(1)
    assert back.reset
    assert not pipe.inbox
    assert pipe.never_acknowledged == 3


async def test_a_cut_comes_after_the_very_byte(clock: VirtualClock, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(clock)
    cuts: list[int] = []
    pipe.cut_after(5, lambda: cuts.append(len(pipe.inbox)))
    write(pipe, b"abc")
    await trio.sleep(1)
    assert not cuts
    write(pipe, b"defgh")
    await trio.sleep(1)
    assert cuts == [5]
    assert pipe.inbox == b"abcde"


async def test_it_is_known_how_much_has_arrived_and_when_the_rest_does(
    clock: VirtualClock, autojump_clock: MockClock
) -> None:
    pipe, _ = pipes(clock)
    write(pipe, b"abc")
    assert (pipe.written, pipe.arrived) == (3, 0)
    await trio.sleep_until(pipe.last_arrival)
    assert (pipe.written, pipe.arrived) == (3, 3)
    write(pipe, b"d")
    pipe.stall(5.0)
    assert pipe.last_arrival == trio.current_time() + 5.0
