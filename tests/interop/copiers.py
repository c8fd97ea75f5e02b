"""Applications that copy records in transactions with the offsets of their group, and that a test may stop and wake."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kproxy.testing.kafka import die_with_parent
from tests.support.clients import Command
from tests.support.patience import PATIENCE_S

_RESULT: Final = "RESULT "


class Copier:
    """One application: its commands and their results are described in README.md of the drivers."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def do(self, command: str) -> str:
        """The result of a command. AssertionError with the end of its log if the application ends, or says nothing."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        too_late = threading.Timer(PATIENCE_S, self._process.kill)
        too_late.start()
        try:
            for line in self._process.stdout:
                if line.startswith(_RESULT):
                    return line.removeprefix(_RESULT).strip()
        finally:
            too_late.cancel()
        raise AssertionError(f"no result:\n{self._log.read_text(encoding='utf-8', errors='replace')[-4000:]}")

    def stop(self) -> None:
        """Nothing of it runs from now on, as in a virtual machine that is moved."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        """It continues, and knows nothing of the time between."""
        os.kill(self._process.pid, signal.SIGCONT)


@contextmanager
def copier(command: Command, job: Mapping[str, Any], log: Path) -> Iterator[Copier]:
    """An application that waits for commands, until the block ends: then it is killed."""
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(
            [*command.argv, json.dumps(dict(job))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=command.whole_environment,
            preexec_fn=die_with_parent(),
            text=True,
        ) as process,
    ):
        try:
            yield Copier(process, log)
        finally:
            process.kill()
