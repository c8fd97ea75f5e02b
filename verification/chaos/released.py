"""Released clients as processes of their own, which write down their operations themselves."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from kproxy.testing.cache import installed
from verification.chaos.recorder import Recorder

_INSTALL_TIMEOUT_S: Final = 600
_SETTLE_S: Final = 100.0
KAFKA_PYTHON: Final = ("kafka-python==1.4.7", "six==1.17.0")
LIBRDKAFKA: Final = ("confluent-kafka==2.9.0",)
"""Later ones may wait for ever for a group's coordinator that has left the metadata (docs/clients.md)."""


class ClientFailed(RuntimeError):
    """A released client cannot be installed, or ended before it was stopped."""


@dataclass(frozen=True, slots=True)
class ReleasedClient:
    """A module of ``drivers``, its job, and what it needs beside what is installed."""

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
        site = ""
        if self._client.requirements:
            site = str(await trio.to_thread.run_sync(_installed, self._client.requirements))
        environment = {**os.environ, "PYTHONPATH": site}
        with self._log.open("wb") as log:
            return await trio.lowlevel.open_process(
                [sys.executable, "-m", f"verification.chaos.drivers.{self._client.driver}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
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


def _installed(requirements: Sequence[str]) -> Path:
    """Return the directory that holds the pinned packages, installing them when first needed.

    :raises ClientFailed: pip cannot.
    """
    return installed("chaos", [sys.version, *requirements], lambda target: _pip(target, requirements))


def _pip(target: Path, requirements: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    done = subprocess.run(
        [*pip, "--target", str(target), *requirements],
        capture_output=True,
        text=True,
        timeout=_INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ClientFailed(f"cannot install {' '.join(requirements)}:\n{done.stderr[-3000:]}")
