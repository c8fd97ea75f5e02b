"""What kernels acknowledge, send again and give up, as Linux does it."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from verification.simulation.clock import VirtualClock
from verification.simulation.link import Link
from verification.simulation.tcp import (
    KEEPALIVE_SECONDS,
    PATIENCE_SECONDS,
    AckHabits,
    Acknowledgements,
    retransmission,
    syn_after,
)
from verification.simulation.weather import Weather

PROMPT = Weather((0.1,), acks=AckHabits((0.0,), 0.0))
LATE = Weather((0.1,), acks=AckHabits((0.2,), 0.0))
#: Seconds within which bytes that are sent over 0.1 s (and jitter) have arrived, and are acknowledged.
THERE, BACK = 0.25, 0.4


def link(clock: MockClock, weather: Weather = PROMPT) -> Link:
    """A client's connection; its near end is the client's, its far end kproxy's."""
    return Link(0, "client", VirtualClock(clock), Random(2), ("client", "kproxy"), weather)


def read(one: Link) -> int:
    """The client reads what there is."""
    return one.near.receive_now([memoryview(bytearray(1 << 16))]) or 0


async def test_an_acknowledgement_takes_a_time_of_its_own(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    assert (one.near.pending(), one.far.unacked()) == (3, 3)
    await trio.sleep(0.11)
    assert one.far.unacked() == 0
    assert one.near.pending()  # the kernel has it, the program has not


async def test_a_delayed_acknowledgement_is_late_though_the_program_has_read(autojump_clock: MockClock) -> None:
    one = link(autojump_clock, LATE)
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    assert read(one) == 3
    await trio.sleep(0.29)
    assert one.far.unacked() == 3
    await trio.sleep(0.02)
    assert one.far.unacked() == 0


@pytest.mark.parametrize("closes", [False, True])
async def test_bytes_and_a_fin_carry_the_acknowledgement(autojump_clock: MockClock, closes: bool) -> None:
    one = link(autojump_clock, Weather((0.1,), acks=AckHabits((30.0,), 0.0)))
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    read(one)
    if closes:
        one.near.close()
    else:
        one.near.send_at_once([b"next"])
    await trio.sleep_until(one.up.last_arrival + 0.001)
    assert one.far.pending() or one.far.peer_closed()
    assert one.far.unacked() == 0


async def test_a_reset_acknowledges_nothing(autojump_clock: MockClock) -> None:
    one = link(autojump_clock, LATE)
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    one.near.close()
    await trio.sleep(0.01)
    assert not one.far.closed_well()
    await trio.sleep(1)
    assert one.far.unacked() == 3


async def test_a_lost_acknowledgement_is_repeated_when_the_bytes_are_sent_again(autojump_clock: MockClock) -> None:
    one = link(autojump_clock, Weather((0.1,), acks=AckHabits((0.0,), 1.0)))
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    await trio.sleep(0.5)
    assert one.far.unacked() == 3
    await trio.sleep(0.3)
    assert one.far.unacked() == 0


async def test_what_has_no_room_in_the_receive_buffer_is_not_acknowledged(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    sent = one.far.send_at_once([bytes(200_000)])
    await trio.sleep(2)
    assert one.far.unacked() == sent // 2
    read(one)
    await trio.sleep(BACK)
    assert one.far.unacked() == 0


def test_a_packet_is_sent_again_later_and_later() -> None:
    assert [retransmission(10.0, 0.01, 10.0 + after) for after in (0.0, 0.1, 0.5, 0.7, 43.0)] == pytest.approx(
        [10.0, 10.2, 10.6, 11.4, 61.0]
    )
    assert [syn_after(10.0, 10.0 + after) for after in (0.0, 0.5, 2.0, 13.0)] == [10.0, 11.0, 13.0, 25.0]


async def test_bytes_of_a_cut_route_arrive_when_they_are_next_sent_again(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.far.send_at_once([b"abc"])
    one.cut_route(10.0)
    one.near.send_at_once([b"request"])
    await trio.sleep(10.0)
    assert not (one.near.pending() or one.far.pending())
    assert (one.near.unacked(), one.far.unacked()) == (7, 3)
    await trio.sleep(20.0)
    assert one.near.pending()
    assert one.far.pending()
    assert (one.near.unacked(), one.far.unacked()) == (0, 0)


async def test_where_acknowledgements_alone_are_lost_the_bytes_arrive(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.cut_route(5.0, down=False)
    one.far.send_at_once([b"abc"])
    await trio.sleep(THERE)
    assert read(one) == 3
    await trio.sleep(4.0)
    assert one.far.unacked() == 3
    await trio.sleep(6.0)
    assert one.far.unacked() == 0


async def test_an_acknowledgement_in_flight_is_lost_with_its_route(autojump_clock: MockClock) -> None:
    one = link(autojump_clock, LATE)
    one.far.send_at_once([b"abc"])
    await trio.sleep_until(one.down.last_arrival)
    assert read(one) == 3
    one.cut_route(3.0)
    await trio.sleep(2.9)
    assert one.far.unacked() == 3


async def test_an_end_with_unacknowledged_data_sends_no_probes(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.cut_route(10_000.0)
    one.far.send_at_once([b"abc"])
    await trio.sleep(KEEPALIVE_SECONDS + 60)
    assert not one.near.closed_well()  # the client has nothing unacknowledged
    assert not one.far.peer_closed()
    await trio.sleep(PATIENCE_SECONDS)
    assert not one.far.closed_well()


@pytest.mark.parametrize("ms", [15_000, 30_000])
async def test_a_user_time_out_ends_it(autojump_clock: MockClock, ms: int) -> None:
    one = link(autojump_clock)
    one.far.limit_unacknowledged(ms)
    one.far.send_at_once([b"abc"])
    await trio.sleep(60.0)
    assert not one.far.peer_closed()  # acknowledged in time
    one.cut_route(10_000.0)
    one.far.send_at_once([b"abc"])
    await trio.sleep(ms / 1000 - 0.1)
    assert not one.far.peer_closed()
    await trio.sleep(0.2)
    assert not one.far.closed_well()
    assert one.far.unacked() == 3


async def test_it_ends_a_peer_that_does_not_read_as_well(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.far.limit_unacknowledged(15_000)
    one.far.send_at_once([bytes(200_000)])
    await trio.sleep(14.0)
    assert not one.far.peer_closed()
    await trio.sleep(3.0)
    assert not one.far.closed_well()


async def test_data_for_an_end_that_gave_up_is_answered_by_a_reset(autojump_clock: MockClock) -> None:
    one = link(autojump_clock)
    one.far.limit_unacknowledged(5_000)
    one.far.send_at_once([b"abc"])
    one.cut_route(8.0)
    await trio.sleep(9.0)
    assert not one.far.closed_well()
    assert not one.near.peer_closed()  # nobody told it
    one.near.send_at_once([b"request"])
    await trio.sleep(0.5)
    assert not one.near.closed_well()


async def test_a_reset_is_not_sent_again_but_a_fin_is(autojump_clock: MockClock) -> None:
    for reads in True, False:
        one = link(autojump_clock)
        one.far.send_at_once([b"abc"])
        await trio.sleep(BACK)
        if reads:
            read(one)
        one.cut_route(5.0)
        one.near.close()
        await trio.sleep(12.0)
        assert one.far.peer_closed() is reads


def test_a_later_acknowledgement_replaces_those_that_arrive_after_it() -> None:
    acks = Acknowledgements(Random(1), AckHabits())
    acks.sent(0.0, 5)
    acks.sent(1.0, 9)
    acks.comes(3.0, 5)
    acks.comes(2.0, 9)
    acks.settle(1.9)
    assert (acks.position, acks.waiting_since) == (0, 0.0)
    acks.settle(2.0)
    assert (acks.position, acks.waiting_since, acks.progress_at) == (9, None, 2.0)
