"""A run that is ended from outside reports what it found until then, and ``--unpassed`` runs the tests that it left."""

import signal
import time
from pathlib import Path
from types import FrameType

import pytest

from tools.rerun import Result, read_run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--unpassed``."""
    parser.addoption(
        "--unpassed",
        type=Path,
        metavar="REPORT",
        help="run only tests that failed or did not run in the run of this JUnit report; none if there is no report",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed."""
    path = config.getoption("--unpassed", default=None)
    if path is None:
        return
    results = read_run(path).results
    left = [item for item in items if results and results.get(item.nodeid, Result.FAILED) is Result.FAILED]
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = left


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch the run in the process that writes the reports of several others."""
    if session.config.pluginmanager.hasplugin("dsession"):
        session.config.pluginmanager.register(Watch())


class Watch:
    """A pytest plugin: SIGTERM ends the run as an interruption, with all reports and a list of the running tests."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._running: list[str] = []
        signal.signal(signal.SIGTERM, self._terminated)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # make and its process group both send one
        now = time.monotonic()
        self._running = [f"{test} for {now - began:.0f} s" for test, began in self._began.items()]
        pytest.exit("ended by SIGTERM", returncode=pytest.ExitCode.INTERRUPTED)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self._running:
            terminalreporter.write_line(f"running when the run was ended: {test}")
