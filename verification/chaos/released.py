"""Released clients as processes of their own, which write down their operations themselves."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from verification.chaos.programs import Command, command_of
from verification.chaos.recorder import Recorder

_SETTLE_S: Final = 100.0
KAFKA_PYTHON: Final = ("kafka-python==1.4.7", "six==1.17.0")
JAVA_0_10: Final = ("org.apache.kafka:kafka-clients:0.10.2.2", "com.google.code.gson:gson:2.11.0")
LIBRDKAFKA: Final = ("confluent-kafka==2.9.0",)
"""Later ones may wait for ever for a group's coordinator that has left the metadata (docs/clients.md)."""


class ClientFailed(RuntimeError):
    """A released client ended before it was stopped, or did not settle."""


@dataclass(frozen=True, slots=True)
class ReleasedClient:
    """A program in ``drivers`` (see :func:`command_of`), its job, and what it needs beside what is installed."""

    driver: str
    job: Mapping[str, Any]
    requirements: tuple[str, ...] = ()


class ReleasedProducer:
    """Runs a released client until it is stopped.

    :param directory: where its own log goes.
    """

    def __init__(self, client: ReleasedClient, bootstrap: str, recorder: Recorder, directory: Path) -> None:
        self._client = client
        self._job = {**client.job, "bootstrap": bootstrap}
        self._recorder = recorder
        self._log = directory / f"{client.job['name']}.log"
        self._stopping = trio.Event()

    async def install(self) -> Command:
        """Install what it needs, if that has not been done, and return how to start it.

        :raises ClientFailed: it cannot be installed.
        """
        return await trio.to_thread.run_sync(command_of, self._client.driver, self._client.requirements)

    def stop(self) -> None:
        """Let it settle what is open and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Start it and take down what it did until it ends.

        :raises ClientFailed: it ended by itself, or did not settle what was open in 100 s.
        """
        process = await self._start()
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            await stdin.send_all(json.dumps(self._job).encode() + b"\n")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_input, stdin)
                await self._take_down(stdout)
                if not self._stopping.is_set():
                    raise ClientFailed(f"{self._job['name']} ended by itself:\n{self._log.read_text()[-3000:]}")
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def _start(self) -> trio.Process:
        command = await self.install()
        with self._log.open("wb") as log:
            return await trio.lowlevel.open_process(
                command.arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=command.environment,
            )

    async def _end_input(self, stdin: trio.abc.SendStream) -> None:
        await self._stopping.wait()
        await stdin.aclose()
        await trio.sleep(_SETTLE_S)
        raise ClientFailed(f"{self._job['name']} did not settle in {_SETTLE_S:.0f} s what was open")

    async def _take_down(self, stdout: trio.abc.ReceiveStream) -> None:
        rest = b""
        async for data in stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._recorder.add_line(line.decode())
