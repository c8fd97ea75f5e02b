"""The ends of connections, asked for all at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kproxy.net.end_watch import EndWatch
from kproxy.net.socket_io import SocketIO
from tests.net.byte_io import read, sockets
from tests.net.harness import eventually


class Ends:
    """What a watch reports, by name."""

    def __init__(self) -> None:
        self.watch = EndWatch()
        self.told: list[tuple[str, float]] = []

    def add(self, io: SocketIO, name: str) -> None:
        io.watch_end(self.watch, lambda now: self.told.append((name, now)))

    def look(self, now: float = 1.0) -> list[str]:
        """What was reported now."""
        self.told.clear()
        self.watch.look(now)
        assert {at for _, at in self.told} <= {now}
        return sorted(name for name, _ in self.told)


@contextmanager
def pairs(count: int) -> Iterator[list[tuple[SocketIO, SocketIO]]]:
    opened = [sockets() for _ in range(count)]
    try:
        yield opened
    finally:
        for io in (io for pair in opened for io in pair):
            io.close()


@pytest.mark.parametrize("reset", [False, True])
async def test_each_end_is_reported_once_and_past_data_that_is_not_read_yet(reset: bool) -> None:
    ends = Ends()
    with pairs(3) as opened:
        for number, (mine, _) in enumerate(opened):
            ends.add(mine, str(number))
        assert ends.look() == []
        mine, peer = opened[1]
        if reset:
            await mine.send_all([b"never read"])
            await peer.readable()
        await peer.send_all([b"read later"])
        assert ends.look() == []
        peer.close()
        await eventually(mine.peer_closed)
        assert ends.look() == ["1"]
        assert ends.look() == []


async def test_what_comes_of_a_client_after_it_ended_another_connection_finds_that_end_reported() -> None:
    """The retry on the new connection may be read before the end of the old one."""
    ends = Ends()
    with pairs(2) as ((old, old_peer), (new, new_peer)):
        ends.add(old, "old")
        ends.add(new, "new")
        await old_peer.send_all([b"a"])
        old_peer.close()
        await new_peer.send_all([b"a"])
        assert await read(new, 1) == b"a"
        assert ends.look() == ["old"]


async def test_a_connection_that_had_ended_before_it_was_watched_is_reported() -> None:
    ends = Ends()
    with pairs(2) as ((one, one_peer), (two, _)):
        one_peer.close()
        await eventually(one.peer_closed)
        two.close()
        ends.add(one, "one")
        ends.add(two, "two")
        assert ends.look() == ["one", "two"]


async def test_a_connection_that_this_end_closes_is_reported_unless_that_was_done_before() -> None:
    ends = Ends()
    with pairs(2) as ((one, _), (two, two_peer)):
        ends.add(one, "one")
        ends.add(two, "two")
        two_peer.close()
        await eventually(two.peer_closed)
        assert ends.look() == ["two"]
        one.close()
        two.close()
        assert ends.look() == ["one"]
        assert ends.look() == []


async def test_many_that_end_at_once_are_all_reported_by_one_look() -> None:
    ends = Ends()
    with pairs(40) as opened:
        for number, (mine, peer) in enumerate(opened):
            ends.add(mine, f"{number:02}")
            peer.close()
        for mine, _ in opened:
            await eventually(mine.peer_closed)
        assert ends.look() == [f"{number:02}" for number in range(40)]
