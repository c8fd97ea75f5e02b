"""Queued commands of a session."""

from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.errors import KproxyError, LocalProtocolError, RemoteProtocolError
from kproxy.net.dispatch import Dispatch
from kproxy.proxy.commands import Encode
from kproxy.proxy.slots import Slot
from tests.proxy.playbook import Play


@pytest.mark.parametrize("error", [LocalProtocolError("unsayable"), RemoteProtocolError("too many elements")])
async def test_a_long_response_that_cannot_be_changed_ends_its_connection_and_no_other(error: KproxyError) -> None:
    """A response that has more array elements than are decoded once ended the task, with an error of Python's."""
    play, told = Play(), list[str]()

    async def changed() -> None:
        told.append("changed")

    def encode() -> bytes:
        raise error

    connection: Any = SimpleNamespace(session=play.session, changed=changed, wall=0.0)
    unused: Any = None
    await Dispatch(connection, unused, None)._encode(Encode(Slot(3, 1, 1, 0.0, 10), encode))
    assert play.link.finished
    assert told == ["changed"]
