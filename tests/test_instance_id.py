"""Two processes with one instance.id: ``kproxy run`` refuses to be the second, or replaces the first."""

import signal
from collections.abc import Sequence

import pytest
import trio

from kproxy.config import ExitCode
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import FrameClient, values_in
from tests.net.retrying import bases, batch, request
from tests.support.processes import Process, kproxy, serving

_ID: Sequence[str] = ("--instance-id", "gateway", "--producer-state-log-num-partitions", "1")
_PATIENCE_S = 90
TOLD = "another process was started with this instance.id: told it that this one is alive; give each process its own"


async def ended(running: Process) -> int:
    with trio.fail_after(_PATIENCE_S):
        return await running.process.wait()


async def write(running: Process, *values: bytes) -> FrameClient:
    """A producer whose records are acknowledged; its connection is open."""
    client = await running.client()
    for value in values:
        assert bases(await client.call(request(batch(value)), 7)) != [-1]
    return client


async def test_the_second_does_not_start_and_both_say_so() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *_ID) as one:
        fake.cluster.create_topic("t")
        await serving(one)
        client = await write(one, b"a")
        async with kproxy(fake.bootstrap, *_ID) as two:
            assert await ended(two) == ExitCode.INSTANCE_TAKEN
            assert "give each process its own instance.id, or use --replace to take over" in two.text
            assert f"process {one.process.pid}" in two.text
        told = await one.said(TOLD)
        assert told["other_pid"] == two.process.pid
        assert bases(await client.call(request(batch(b"b")), 7)) == [1]
        await trio.aclose_forcefully(client.stream)


async def test_the_second_replaces_the_first_and_a_retry_is_not_written_twice() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *_ID) as one:
        fake.cluster.create_topic("t")
        await serving(one)
        client = await write(one, b"a")
        await client.send(request(batch(b"b")), 7)
        with trio.fail_after(_PATIENCE_S):
            while len(values_in(fake.cluster, "t")) < 2:  # noqa: ASYNC110 - a log has no event for it
                await trio.sleep(0.01)
        async with kproxy(fake.bootstrap, *_ID, "--replace") as two:
            await two.said("taking over from another process with this instance.id")
            assert await ended(one) == ExitCode.INSTANCE_TAKEN
            lost = await one.said("another process has taken over this instance.id; ending at once")
            assert lost["other_pid"] == two.process.pid
            assert lost["own_pid"] == one.process.pid
            assert "lost instance.id = 'gateway'" in one.text
            await serving(two)
            again = await two.client()
            for value in (b"b", b"c"):
                await again.call(request(batch(value)), 7)
            assert values_in(fake.cluster, "t") == [b"a", b"b", b"c"]
            await trio.aclose_forcefully(client.stream)
            await trio.aclose_forcefully(again.stream)


async def test_a_process_that_was_killed_is_not_waited_for() -> None:
    async with open_fake_cluster() as fake:
        fake.cluster.create_topic("t")
        for number in range(3):
            async with kproxy(fake.bootstrap, *_ID) as running:
                await running.said("ready")
                client = await write(running, f"{number}".encode())
                running.process.kill()
                await ended(running)
                await trio.aclose_forcefully(client.stream)
                assert not any("did not answer" in str(line["event"]) for line in running.lines)
        assert len(values_in(fake.cluster, "t")) == 3


async def test_a_process_that_stands_still_is_alive_until_it_is_replaced_and_then_ends() -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *_ID) as one:
        fake.cluster.create_topic("t")
        await serving(one)
        client = await write(one, b"a")
        one.process.send_signal(signal.SIGSTOP)
        await client.send(request(batch(b"b")), 7)
        async with kproxy(fake.bootstrap, *_ID) as two:
            assert await ended(two) == ExitCode.INSTANCE_TAKEN
        async with kproxy(fake.bootstrap, *_ID, "--replace") as two:
            await serving(two)
            again = await write(two, b"b")
            one.process.send_signal(signal.SIGCONT)
            assert await ended(one) == ExitCode.INSTANCE_TAKEN
            await again.call(request(batch(b"c")), 7)
            assert values_in(fake.cluster, "t") == [b"a", b"b", b"c"]
            await trio.aclose_forcefully(client.stream)
            await trio.aclose_forcefully(again.stream)


async def test_a_process_that_stopped_in_good_order_says_so() -> None:
    async with open_fake_cluster() as fake:
        for _ in range(2):
            async with kproxy(fake.bootstrap, *_ID) as running:
                await running.said("ready")
                running.process.send_signal(signal.SIGTERM)
                assert await ended(running) == ExitCode.OK


@pytest.mark.parametrize("option", ["--crash-recovery-enable", "--idempotence-enable"])
async def test_without_a_log_of_producer_ids_nobody_notices(option: str) -> None:
    async with open_fake_cluster() as fake, kproxy(fake.bootstrap, *_ID, option, "false") as one:
        await serving(one)
        async with kproxy(fake.bootstrap, *_ID, option, "false") as two:
            await serving(two)
            assert one.process.returncode is None
