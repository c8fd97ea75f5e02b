"""Released clients as processes in a network namespace, which take commands and report in lines of JSON."""

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from verification.chaos.programs import command_of
from verification.chaos.released import KAFKA_PYTHON, ClientFailed
from verification.network.namespace import Namespace

__all__ = ["KAFKA_PYTHON_OF_2019", "LIBRDKAFKA", "ClientProcess", "install"]

_DRIVERS: Final = "verification.network.drivers"
KAFKA_PYTHON_OF_2019: Final = ("kafka_python_commands", KAFKA_PYTHON)
"""kafka-python 1.4.7: a driver and what it needs."""
LIBRDKAFKA: Final = ("librdkafka_numbers", ())
"""librdkafka in the version of the confluent-kafka that the development tools have."""
_END_S: Final = 30.0


def install() -> None:
    """Install what the drivers need, while there is a network.

    :raises Unavailable: it cannot be installed.
    """
    for driver, requirements in (KAFKA_PYTHON_OF_2019, LIBRDKAFKA):
        command_of(driver, requirements, package=_DRIVERS)


class ClientProcess:
    """A driver at work; a context manager that ends it in any case.

    :param program: a driver in ``drivers`` and the Python packages that it needs.
    :param job: what it is to do: the first line that it reads.
    :param log: where its standard error goes.
    """

    def __init__(
        self, program: tuple[str, tuple[str, ...]], job: Mapping[str, Any], namespace: Namespace, log: Path
    ) -> None:
        self._program = program
        self._job = job
        self._namespace = namespace
        self._log = log
        self._reports: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, name="client reports")

    def __enter__(self) -> Self:
        command = command_of(*self._program, package=_DRIVERS)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command.arguments,
                env=command.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=self._namespace.before_start(),
            )
        self._reader.start()
        self.command(self._job)
        return self

    def __exit__(self, *_: object) -> None:
        process = self._running
        process.kill()
        process.wait()
        self._reader.join()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def command(self, fields: Mapping[str, Any]) -> None:
        """Give it a command.

        :raises ClientFailed: it has ended.
        """
        stream = self._running.stdin
        assert stream is not None
        try:
            stream.write(json.dumps(fields) + "\n")
            stream.flush()
        except BrokenPipeError:
            raise ClientFailed(self._ended()) from None

    def report(self, wanted: Callable[[dict[str, Any]], bool] = bool, *, seconds: float = 60.0) -> dict[str, Any]:
        """Return the next report that is wanted; those before it are thrown away.

        :raises ClientFailed: it has ended, or there is none within so many seconds.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self._reports.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ClientFailed(f"{self._program[0]} reported nothing for {seconds:.0f} s{self._tail()}") from None
            if found is None:
                raise ClientFailed(self._ended())
            if wanted(found):
                return found

    def end(self) -> None:
        """Let it close its connections in good order, as programs do, and end.

        :raises ClientFailed: it fails, or does not end in 30 s.
        """
        stream = self._running.stdin
        assert stream is not None
        stream.close()
        try:
            status = self._running.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise ClientFailed(f"{self._program[0]} did not end in {_END_S:.0f} s{self._tail()}") from None
        if status:
            raise ClientFailed(self._ended())

    def _read(self) -> None:
        stream = self._running.stdout
        assert stream is not None
        for line in stream:
            self._reports.put(json.loads(line))
        self._reports.put(None)

    def _ended(self) -> str:
        return f"{self._program[0]} ended by itself{self._tail()}"

    def _tail(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
        return f":\n{text}" if text else ""
