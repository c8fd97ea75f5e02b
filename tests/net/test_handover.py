import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from kproxy.config import StartupError
from kproxy.net import handover
from kproxy.net.handover import HandOver, Predecessor


class Old:
    """The process that hands over, as far as this goes."""

    def __init__(self, path: Path, listeners: list[socket.socket]) -> None:
        self.taken = trio.Event()
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen()
        offered = [(sock.fileno(), index or None) for index, sock in enumerate(listeners)]
        self.hand_over = HandOver("me", lambda: offered, self._taken)

    def _taken(self) -> int:
        self.taken.set()
        return 50

    async def find(self) -> Predecessor:
        found = await Predecessor.find(self.path)
        assert found is not None
        return found


@asynccontextmanager
async def handing_over(path: Path, listeners: int = 2) -> AsyncIterator[Old]:
    made = [socket.create_server(("127.0.0.1", 0)) for _ in range(listeners)]
    old = Old(path / "h.sock", made)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(old.hand_over.serve, old.listener)
            yield old
            nursery.cancel_scope.cancel()
    for sock in (*made, old.listener):
        sock.close()
    old.hand_over.close()


async def test_the_sockets_themselves_change_hands(tmp_path: Path) -> None:
    async with handing_over(tmp_path) as old:
        found = await old.find()
        assert found.instance_id == "me"
        assert [each.node_id for each in found.listening] == [None, 1]
        places = [each.sock.getsockname() for each in found.listening]
        waiting = [socket.create_connection(place) for place in places]  # in the queue before anybody accepts
        assert not old.taken.is_set()
        await found.take()
        assert old.taken.is_set()
        for each, client in zip(found.listening, waiting, strict=True):
            accepted, peer = each.sock.accept()
            assert peer == client.getsockname()
            accepted.close()
            client.close()
        found.close()


async def test_the_end_of_the_old_one_is_waited_for(tmp_path: Path) -> None:
    async with handing_over(tmp_path) as old:
        found = await old.find()
        await found.take()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.ended)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            old.hand_over.close()
        found.close()


async def test_who_gives_up_changes_nothing_and_another_may_come(tmp_path: Path) -> None:
    async with handing_over(tmp_path) as old:
        first = await old.find()
        first.close()
        second = await old.find()
        assert not old.taken.is_set()
        await second.take()
        assert old.taken.is_set()
        second.close()


async def test_an_old_one_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    killed: list[int] = []
    async with handing_over(tmp_path) as old:

        def kill(pid: int, signum: int) -> None:
            killed.append(pid)
            old.hand_over.close()

        found = await old.find()
        await found.take()
        monkeypatch.setattr(os, "kill", kill)
        await found.ended()
        assert killed == [os.getpid()]
        found.close()


async def test_neither_side_speaks_with_another_users_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with handing_over(tmp_path) as old:
        monkeypatch.setattr(handover, "_peer", lambda sock: (7, os.getuid() + 1, 0))
        with pytest.raises(StartupError, match=r"the process 7 at the other end runs as uid \d+, not as"):
            await old.find()
        assert not old.taken.is_set()


async def test_nobody_there(tmp_path: Path) -> None:
    assert await Predecessor.find(tmp_path / "none") is None
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stale.bind(str(tmp_path / "stale"))
    stale.close()
    assert await Predecessor.find(tmp_path / "stale") is None


async def test_something_else_there_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other, trio.fail_after(20):
        other.bind(str(tmp_path / "x"))
        other.listen()

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.send(b"hello")

        with pytest.raises(StartupError, match=r"cannot take over at handover\.socket = .* is not understood"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, answer)
                try:
                    await Predecessor.find(tmp_path / "x")
                except StartupError as error:
                    nursery.cancel_scope.cancel()
                    failed = error
            raise failed


async def test_an_old_one_that_goes_away_instead_is_reported(tmp_path: Path) -> None:
    async with handing_over(tmp_path) as old:
        found = await old.find()
        found._sock.close()
        with pytest.raises(StartupError, match="did not"):
            await found.take()
        found.close()
