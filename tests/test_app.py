"""The whole program as a process: signals, readiness, exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import trio

from kproxy.client import ControlClient, Transaction
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.config import ExitCode
from kproxy.testing.fake_broker import Delay, FakeServer, open_fake_cluster
from tests.net.harness import FrameClient, errors_of, fetch, metadata, produce, values_in


class Process:
    """``kproxy run`` with its ports chosen by the system and read from its log."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []
        self._rest = b""

    async def read(self) -> None:
        """Collect what it logs, one JSON object a line."""
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.lines += [json.loads(line) for line in lines if line.startswith(b"{")]

    async def said(self, event: str) -> dict[str, object]:
        """The first line with this event; trio.TooSlowError if there is none."""
        with trio.fail_after(30):
            while True:
                for line in self.lines:
                    if line["event"] == event:
                        return line
                await trio.sleep(0.01)

    async def client(self) -> FrameClient:
        """A client at the port to bootstrap from."""
        host, _, port = str((await self.said("kproxy is running"))["listen"]).rpartition(":")
        return FrameClient(await trio.open_tcp_stream(host, int(port)), "test")

    async def status(self, page: str) -> int:
        """The HTTP status of a page, 0 if there is no answer."""
        place = (await self.said("kproxy is running"))["http"]
        return await trio.to_thread.run_sync(_status, f"http://{place}{page}")


def _status(url: str) -> int:
    try:
        with urlopen(url, timeout=2) as answer:
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
    with trio.fail_after(30):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110 - another process is looked at
            await trio.sleep(0.02)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_when_what_was_taken_is_answered(signum: signal.Signals) -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap) as running:
        fake.cluster.create_topic("t")
        await serving(running)
        fake.cluster.control(ApiKey.PRODUCE, lambda _: Delay(before=0.3))
        async with await running.client() as client:
            await client.send(produce("t", b"a"), 8)
            await trio.sleep(0.1)
            running.process.send_signal(signum)
            await running.said("stopping")
            assert await running.status("/readyz") == 503
            assert errors_of(await client.receive()) == [0]
            assert await client.ended()
        with trio.fail_after(5):
            assert await running.process.wait() == ExitCode.OK
        assert values_in(fake.cluster, "t") == [b"a"]


async def test_a_signal_has_the_configuration_read_again(tmp_path: Path) -> None:
    file = tmp_path / "kproxy.yaml"
    file.write_text("log.level: info")
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, "--config", str(file)) as running:
        await serving(running)
        file.write_text("{log.level: info, max.connections: 0}")
        running.process.send_signal(signal.SIGHUP)
        line = await running.said("configuration not reloaded; nothing has changed")
        assert "max.connections = '0'" in str(line["problems"])
        file.write_text("{log.level: info, max.connections: 1, retry.window.ms: 5}")
        running.process.send_signal(signal.SIGHUP)
        line = await running.said("configuration reloaded")
        assert line["applied"] == {"max.connections": "10000 -> 1"}
        assert line["restart_needed"] == {"retry.window.ms": "120000 -> 5"}
        async with await running.client() as first, await running.client() as second:
            assert (await first.call(metadata(), 1)).brokers
            assert await second.ended()


async def test_the_end_does_not_wait_longer_than_it_may() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, "--shutdown-grace-ms", "200") as running:
        fake.cluster.create_topic("t")
        await serving(running)
        fake.cluster.control(ApiKey.PRODUCE, lambda _: Delay(before=60))
        async with await running.client() as client:
            await client.send(produce("t", b"a"), 8)
            await trio.sleep(0.1)
            began = time.monotonic()
            running.process.terminate()
            assert await client.ended()
            with trio.fail_after(5):
                assert await running.process.wait() == ExitCode.OK
            assert time.monotonic() - began < 3


async def serving(running: Process) -> None:
    async def ready() -> bool:
        return await running.status("/readyz") == 200

    await until(ready)


async def test_it_waits_for_a_cluster_that_is_down_and_says_so_once() -> None:
    async with open_fake_cluster() as fake:
        await fake.stop_broker(1)
        async with kproxy(fake.bootstrap) as running:
            await running.said("no broker can be reached; trying on")
            assert await running.status("/healthz") == 200
            assert await running.status("/readyz") == 503
            await trio.sleep(0.3)
            await fake.start_broker(1)
            await serving(running)
            await ask(running, fake)
            assert [line["event"] for line in running.lines].count("no broker can be reached; trying on") == 1
            await running.said("broker reached")


async def ask(running: Process, fake: FakeServer) -> None:
    fake.cluster.create_topic("t")
    async with await running.client() as client:
        assert (await client.call(metadata("t"), 0)).topics[0].name == "t"


async def test_a_script_makes_a_transaction_of_what_a_client_writes(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    flags = ["--control-socket", str(path), "--transaction-state-log-num-partitions", "2"]
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        fake.cluster.create_topic("t")
        await serving(running)

        async def seen(client: FrameClient) -> list[bytes | None]:
            part = (await client.call(fetch("t"), 3)).responses[0].partitions[0]
            return [record.value for record in iter_records(part.records, max_decompressed_bytes=1 << 20)]

        def begin() -> Transaction:
            return ControlClient(path).transaction("load", client_id="test").__enter__()

        async with await running.client() as client:
            transaction = await trio.to_thread.run_sync(begin)
            assert errors_of(await client.call(produce("t", b"a"), 8)) == [0]
            assert values_in(fake.cluster, "t") == [b"a"]
            assert await seen(client) == []
            told = await trio.to_thread.run_sync(transaction.commit)
            assert (told.state, told.client_id) == ("CompleteCommit", "test")
            assert await seen(client) == [b"a"]
        running.process.terminate()
        with trio.fail_after(10):
            assert await running.process.wait() == ExitCode.OK
        assert not path.exists()


async def test_an_address_in_use_is_one_clear_line_and_an_exit_code(tmp_path: Path) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    command = [sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", "127.0.0.1:1", "--http", "off"]
    with trio.fail_after(10):
        done = await trio.run_process(
            [*command, "--listen", f"127.0.0.1:{port}"], capture_stderr=True, check=False, cwd=tmp_path
        )
    await listeners[0].aclose()
    assert done.returncode == ExitCode.CANNOT_BIND
    assert f"127.0.0.1:{port}".encode() in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("wanted", "expected"), [(10, 1020), (1000, 3000), (10**6, 4096)])
def test_the_limit_on_open_files_is_raised_as_far_as_it_may_be(wanted: int, expected: int) -> None:
    script = (
        "import resource, kproxy.app; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096)); "
        f"kproxy.app.allow_connections({wanted}); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == f"({expected}, 4096)"
