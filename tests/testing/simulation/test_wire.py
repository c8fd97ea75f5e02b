"""One direction of a connection."""

from random import Random

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from kproxy.testing.simulation.wire import FIN, RST, Pipe, Wire

LATENCY = 0.01


def pipes(wire: Wire, capacity: int = 1000) -> tuple[Pipe, Pipe]:
    one, other = (Pipe(wire, 0, Random(7), LATENCY, capacity) for _ in range(2))
    one.back, other.back = other, one
    return one, other


@pytest.fixture
async def wire(nursery: trio.Nursery) -> Wire:
    wire = Wire()
    nursery.start_soon(wire.run)
    return wire


def write(pipe: Pipe, data: bytes) -> int:
    return pipe.write(memoryview(data))


async def test_bytes_arrive_in_order_and_later(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire)
    for number in range(50):
        assert write(pipe, b"%02d" % number) == 2
    assert not pipe.inbox
    assert pipe.on_way == 100
    await trio.sleep(1)
    assert bytes(pipe.inbox) == b"".join(b"%02d" % number for number in range(50))
    assert pipe.on_way == 0


async def test_what_is_unread_takes_room(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire, capacity=10)
    assert write(pipe, bytes(16)) == 10
    assert write(pipe, b"x") == 0
    await trio.sleep(1)
    assert write(pipe, b"x") == 0
    buffer = memoryview(bytearray(4))
    assert pipe.read([buffer]) == 4
    assert write(pipe, bytes(16)) == 4


@pytest.mark.parametrize("how", [FIN, RST])
async def test_the_end_comes_behind_the_bytes(wire: Wire, autojump_clock: MockClock, how: str) -> None:
    pipe, _ = pipes(wire)
    write(pipe, b"abc")
    pipe.end(how)
    assert not (pipe.ended or pipe.reset)
    await trio.sleep(1)
    assert pipe.inbox == b"abc"
    assert (pipe.ended, pipe.reset) == (how == FIN, how == RST)


async def test_the_end_of_an_empty_pipe_is_seen_at_once_even_if_it_is_held_up(
    wire: Wire, autojump_clock: MockClock
) -> None:
    pipe, _ = pipes(wire)
    pipe.stall(100)
    pipe.end(FIN)
    await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert pipe.ended


async def test_a_stall_holds_bytes_and_the_end_behind_them(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire)
    write(pipe, b"abc")
    pipe.stall(5)
    pipe.end(FIN)
    await trio.sleep(4.9)
    assert not pipe.inbox
    await trio.sleep(0.2)
    assert pipe.inbox == b"abc"
    assert pipe.ended


async def test_what_vanishes_is_never_acknowledged(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire)
    pipe.vanish()
    write(pipe, b"abc")
    pipe.end(FIN)
    await trio.sleep(1)
    assert (pipe.inbox, pipe.ended, pipe.on_way) == (b"", False, 3)


async def test_bytes_for_a_closed_end_are_answered_by_a_reset(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, back = pipes(wire)
    pipe.gone = True
    write(pipe, b"abc")
    await trio.sleep(1)
    assert back.reset
    assert not pipe.inbox
    assert pipe.never_arrived == 3


async def test_a_cut_comes_behind_the_very_byte(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire)
    cuts: list[int] = []
    pipe.cut_after(5, lambda: cuts.append(len(pipe.inbox)))
    write(pipe, b"abc")
    await trio.sleep(1)
    assert not cuts
    write(pipe, b"defgh")
    await trio.sleep(1)
    assert cuts == [5]
    assert pipe.inbox == b"abcde"


async def test_a_part_of_what_is_on_its_way_may_arrive_before_the_rest(wire: Wire, autojump_clock: MockClock) -> None:
    pipe, _ = pipes(wire)
    write(pipe, b"a")
    assert not pipe.spread
    await trio.sleep(0.6 * LATENCY)
    while not pipe.spread:
        write(pipe, b"b")
    await trio.sleep_until(pipe.last_arrival)
    await trio.testing.wait_all_tasks_blocked()
    assert (pipe.on_way, pipe.spread) == (0, False)
