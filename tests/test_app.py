"""The whole program as a process: signals, readiness, exit codes."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from kproxy.client import ControlClient, ControlError, Transaction
from kproxy.codec import accelerator
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey
from kproxy.config import ExitCode
from kproxy.testing.fake_broker import Call, FakeServer, open_fake_cluster
from tests.net.harness import FrameClient, errors_of, fetch, metadata, produce, values_in
from tests.support.patience import PATIENCE_S
from tests.support.processes import Process, kproxy, serving


class Held:
    """A request that the broker has taken, and does not handle before ``released``."""

    def __init__(self, fake: FakeServer, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        self.taken, self.released = trio.Event(), trio.Event()
        fake.cluster.control(api_key, self._hold)

    async def _hold(self, _: Call) -> None:
        self.taken.set()
        await self.released.wait()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_when_what_was_taken_is_answered(signum: signal.Signals) -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap) as running:
        fake.cluster.create_topic("t")
        await serving(running)
        held = Held(fake)
        async with await running.client() as client:
            await client.send(produce("t", b"a"), 8)
            await held.taken.wait()
            running.process.send_signal(signum)
            await running.said("stopping")
            assert await running.status("/readyz") == 503
            held.released.set()
            assert errors_of(await client.receive()) == [0]
            assert await client.ended()
        with trio.fail_after(PATIENCE_S):
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
    flags = ["--shutdown-grace-ms", "200", "--upstream-request-timeout-ms", "600000"]
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        fake.cluster.create_topic("t")
        await serving(running)
        held = Held(fake)
        async with await running.client() as client:
            await client.send(produce("t", b"a"), 8)
            await held.taken.wait()
            running.process.terminate()
            assert await client.ended()
            with trio.fail_after(PATIENCE_S):
                assert await running.process.wait() == ExitCode.OK


async def test_told_twice_it_ends_at_once() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, "--shutdown-grace-ms", "600000") as running:
        fake.cluster.create_topic("t")
        await serving(running)
        held = Held(fake)
        async with await running.client() as client:
            await client.send(produce("t", b"a"), 8)
            await held.taken.wait()
            running.process.terminate()
            await running.said("stopping")
            running.process.terminate()
            line = await running.said(
                "stopped with something left; what is open is aborted, what is in doubt is settled later"
            )
            assert (line["connections"], line["requests"]) == (1, 1)
            with trio.fail_after(PATIENCE_S):
                assert await running.process.wait() == ExitCode.OK


async def test_load_balancers_may_notice_before_the_ports_close() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, "--shutdown-delay-ms", "600000") as running:
        await serving(running)
        running.process.terminate()
        await running.said("stopping")
        assert await running.status("/readyz") == 503
        await ask(running, fake)


async def test_a_control_request_that_no_broker_answers_does_not_hold_up_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    flags = ["--control-socket", str(path), "--shutdown-grace-ms", "600000"]
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        await serving(running)
        held = Held(fake, ApiKey.CREATE_TOPICS)
        control = ControlClient(path)

        async def begin() -> None:
            with pytest.raises(ControlError, match="kproxy is being stopped") as raised:
                await trio.to_thread.run_sync(lambda: control.begin(client_id="test"))
            assert raised.value.status == 503

        async with trio.open_nursery() as nursery:
            nursery.start_soon(begin)
            await held.taken.wait()
            await fake.stop_broker(1)
            await running.said("no broker reachable; retrying")
            running.process.terminate()
            with trio.fail_after(PATIENCE_S):
                assert await running.process.wait() == ExitCode.OK
        await running.said("stopped; nothing is left")


async def test_a_transaction_that_is_open_is_decided_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    flags = [
        "--control-socket",
        str(path),
        "--transaction-state-log-num-partitions",
        "2",
        "--shutdown-grace-ms",
        "60000",
    ]
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *flags) as running:
        fake.cluster.create_topic("t")
        await serving(running)
        control = ControlClient(path)
        async with await running.client() as member, await running.client() as other:
            other.client_id = "other"
            assert (await other.call(metadata("t"), 1)).brokers
            begun = await trio.to_thread.run_sync(lambda: control.begin(client_id="test"))
            assert errors_of(await member.call(produce("t", b"a"), 8)) == [0]
            running.process.terminate()
            assert await other.ended()  # it has no part in the transaction
            assert errors_of(await member.call(produce("t", b"b"), 8)) == [0]
            with pytest.raises(ControlError, match="kproxy is being stopped"):
                await trio.to_thread.run_sync(lambda: control.begin(client_id="late"))
            told = await trio.to_thread.run_sync(lambda: control.commit("kproxy-test", owner=begun.owner))
            assert told.state == "CompleteCommit"
            assert await member.ended()
        await running.said("stopped; nothing is left")
        with trio.fail_after(PATIENCE_S):
            assert await running.process.wait() == ExitCode.OK


async def test_it_waits_for_a_cluster_that_is_down_and_says_so_once() -> None:
    async with open_fake_cluster() as fake:
        await fake.stop_broker(1)
        async with kproxy(fake.bootstrap) as running:
            await running.said("no broker reachable; retrying")
            assert await running.status("/healthz") == 200
            assert await running.status("/readyz") == 503
            await trio.sleep(0.3)
            await fake.start_broker(1)
            await serving(running)
            await ask(running, fake)
            assert [line["event"] for line in running.lines].count("no broker reachable; retrying") == 1
            await running.said("broker reached")
            ready, listening = await running.said("ready"), await running.said("listening")
            assert {key: ready[key] for key in ("listen", "http")} == {
                key: listening[key] for key in ("listen", "http")
            }
            assert ready["brokers"] == 1
            assert listening["accelerator"] == accelerator.STATE


async def test_a_port_that_is_not_kafkas_is_reported_with_advice() -> None:
    silent = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with silent[0], kproxy(f"127.0.0.1:{silent[0].socket.getsockname()[1]}") as running:
        line = await running.said("not ready yet; clients wait until brokers answer")
    assert "upstream.security.protocol = plaintext" in str(line["advice"])


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
        with trio.fail_after(PATIENCE_S):
            assert await running.process.wait() == ExitCode.OK
        assert not path.exists()


async def test_an_address_in_use_is_one_clear_line_and_an_exit_code(tmp_path: Path) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    command = [sys.executable, "-m", "kproxy", "run", "--bootstrap-servers", "127.0.0.1:1", "--http", "off"]
    with trio.fail_after(PATIENCE_S):
        done = await trio.run_process(
            [*command, "--listen", f"127.0.0.1:{port}", "--shutdown-grace-ms", "100"],
            capture_stderr=True,
            check=False,
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 4096)),
        )
    await listeners[0].aclose()
    assert done.returncode == ExitCode.CANNOT_BIND
    [waits, error] = done.stderr.splitlines()  # that there may be few open files is no reason
    assert b"another process listens at an address of this one; waiting" in waits
    assert error.startswith(f"kproxy: cannot listen on listen = '127.0.0.1:{port}': ".encode())
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("wanted", "expected"), [(10, 1020), (1000, 3000), (10**6, 4096)])
def test_the_limit_on_open_files_is_raised_as_far_as_it_may_be(wanted: int, expected: int) -> None:
    script = (
        "import resource, kproxy.app; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096)); "
        f"kproxy.app.allow_connections({wanted}); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == f"({expected}, 4096)"
