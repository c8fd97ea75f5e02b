"""``kproxy run`` as a process: what it logs, its pages, its end."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import trio

from tests.net.harness import FrameClient


class Process:
    """``kproxy run`` with its ports chosen by the system and read from its log."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []
        #: All that it wrote to stderr.
        self.text = ""
        self._rest = b""

    async def read(self) -> None:
        """Collect what it logs, one JSON object a line."""
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.text += data.decode(errors="replace")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.lines += [json.loads(line) for line in lines if line.startswith(b"{")]

    async def said(self, event: str) -> dict[str, object]:
        """The first line with this event; trio.TooSlowError if there is none."""
        with trio.fail_after(90):
            while True:
                for line in self.lines:
                    if line["event"] == event:
                        return line
                await trio.sleep(0.01)

    async def client(self) -> FrameClient:
        """A client at the port to bootstrap from."""
        host, _, port = str((await self.said("listening"))["listen"]).rpartition(":")
        return FrameClient(await trio.open_tcp_stream(host, int(port)), "test")

    async def status(self, page: str) -> int:
        """The HTTP status of a page, 0 if there is no response."""
        place = (await self.said("listening"))["http"]
        return await trio.to_thread.run_sync(_status, f"http://{place}{page}")


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
    except (URLError, OSError):
        return 0


@asynccontextmanager
async def kproxy(bootstrap: str, *flags: str) -> AsyncIterator[Process]:
    """The program, killed at the end if it still runs."""
    command = [
        sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", bootstrap, "--listen", "127.0.0.1:0",
        "--http", "127.0.0.1:0", "--log-format", "json", "--retry-backoff-ms", "20", "--retry-backoff-max-ms", "50",
        *flags,
    ]  # fmt: skip
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KPROXY_")}
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environ
        )
        running = Process(process)
        nursery.start_soon(running.read)
        try:
            yield running
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            if process.stderr is not None:
                nursery.cancel_scope.cancel()
    if process.stderr is not None:
        await process.stderr.aclose()


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(90):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110 - another process is observed
            await trio.sleep(0.02)


async def serving(running: Process) -> None:
    async def ready() -> bool:
        return await running.status("/readyz") == 200

    await until(ready)
