"""Commands that take long say so on a terminal's stderr, and there alone."""

import io
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kproxy.cli import main
from kproxy.cli import output as output_module
from kproxy.cli.output import waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


OnTerminal: TypeAlias = Callable[[], Terminal]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes stderr a terminal; to be called in the test, because pytest sets stderr when one begins."""
    found = Terminal()
    monkeypatch.setattr(output_module, "_QUIET_SECONDS", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    for name in [name for name in os.environ if name.startswith("KPROXY_")]:
        monkeypatch.delenv(name)

    def begin() -> Terminal:
        monkeypatch.setattr(sys, "stderr", found)
        return found

    return begin


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[str]:
    """The path of a Unix socket at which connections are closed after a while."""
    path = str(tmp_path / "slow.sock")

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            time.sleep(0.5)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


def test_a_terminal_shows_what_takes_long(on_terminal: OnTerminal) -> None:
    terminal = on_terminal()
    with waiting("Asking"):
        time.sleep(0.5)
    assert "Asking ..." in terminal.getvalue()
    assert "0:00:00" in terminal.getvalue()


def test_what_is_quick_shows_nothing(on_terminal: OnTerminal) -> None:
    terminal = on_terminal()
    with waiting("Asking"):
        pass
    assert terminal.getvalue() == ""


def test_a_pipe_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = io.StringIO()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(output_module, "_QUIET_SECONDS", 0.01)
    with waiting("Asking"):
        time.sleep(0.1)
    assert found.getvalue() == ""


@pytest.mark.parametrize(
    "command",
    [["status"], ["clients"], ["lanes"], ["fleet"], ["txn", "list"], ["config", "show"], ["config", "reload"]],
)
def test_a_kproxy_that_does_not_answer_yet(command: list[str], on_terminal: OnTerminal, slow: str) -> None:
    terminal = on_terminal()
    assert main([*command, "--socket", slow]) == 1
    assert "Waiting for kproxy's answer ..." in terminal.getvalue()


@pytest.mark.parametrize("command", [["doctor"], ["run", "--dry-run"]])
def test_brokers_that_do_not_answer_yet(command: list[str], on_terminal: OnTerminal) -> None:
    terminal = on_terminal()
    options = ("--upstream-connect-timeout-ms", "700", "--upstream-request-timeout-ms", "700", "--http", "off")
    # The queue of connections accepts, and nobody reads.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        given = [*command, *options, "--bootstrap-servers", f"127.0.0.1:{mute.getsockname()[1]}"]
        assert main(given) != 0
    assert "Asking the " in terminal.getvalue()
