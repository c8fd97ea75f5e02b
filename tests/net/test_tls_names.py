"""A TLS name that is not ASCII; all other unraisable errors are reported as before."""

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kproxy.net.tls_context import silence_unreadable_names
from tests.net.harness import eventually
from tests.net.test_hostile_tls import HELLO, answered_to_the_end, secured, sent


class Faulty:
    def __del__(self) -> None:
        raise ValueError("gone")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    found: list[SimpleNamespace] = []

    def note(fault: Any) -> None:
        found.append(SimpleNamespace(what=fault.exc_value, where=fault.object))

    monkeypatch.setattr(sys, "unraisablehook", note)
    return found


async def test_a_name_beyond_ascii_is_refused_as_any_other_fault(tmp_path: Path, told: list[SimpleNamespace]) -> None:
    async with (
        secured(tmp_path) as (proxy, _),
        await sent(proxy, HELLO.replace(b"localhost", b"localhos\xfa")) as client,
    ):
        await answered_to_the_end(client)
        await eventually(lambda: proxy.stats.clients.connections_refused == {"tls_handshake": 1})
    assert told == []


def test_other_faults_are_reported(told: list[SimpleNamespace]) -> None:
    before = sys.unraisablehook
    with silence_unreadable_names():
        fault = Faulty()
        del fault
        gc.collect()
    assert [str(each.what) for each in told] == ["gone"]
    assert sys.unraisablehook is before
