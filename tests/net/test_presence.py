"""The kernel says whether a process of this host is alive."""

from typing import Any

import pytest
import trio

from kproxy.dedup.instance_holder import Process
from kproxy.net.presence import Presence, State


async def test_a_process_is_alive_until_it_has_closed() -> None:
    one, two = Presence(0), Presence(0)
    one.open()
    two.open()
    assert one.state(two.process) is State.ALIVE
    with trio.fail_after(60):
        await two.called()
    two.close()
    assert one.state(two.process) is State.DEAD
    one.close()


async def test_one_that_accepts_nothing_is_alive() -> None:
    """A process that is stopped by SIGSTOP."""
    one, two = Presence(0), Presence(0)
    one.open()
    two.open()
    assert {one.state(two.process) for _ in range(50)} == {State.ALIVE}
    one.close()
    two.close()


async def test_nothing_is_known_of_a_process_elsewhere() -> None:
    one, two = Presence(0), Presence(0)
    one.open()
    two.open()
    assert one.state(two.process._replace(boot_id="another")) is State.UNKNOWN
    assert one.state(two.process._replace(namespace="another")) is State.UNKNOWN
    assert one.state(Process(bytes(16), "host", 1, 0)) is State.UNKNOWN
    one.close()
    two.close()


async def test_without_such_sockets_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        return "\0" + "x" * 1000  # longer than an address may be

    monkeypatch.setattr("kproxy.net.presence._address", refuse)
    one = Presence(0)
    one.open()
    assert (one.process.boot_id, one.process.namespace) == ("", "")
    with trio.move_on_after(0.01) as scope:
        await one.called()
    assert scope.cancelled_caught
    one.close()
