"""Two instances that are alive, and a client that sends again through the other one: each record is in the log once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, running, values_in
from tests.net.retrying import Gate, bases, batch, end, request

pytestmark = pytest.mark.idle_clock


@asynccontextmanager
async def two(**options: Any) -> AsyncIterator[tuple[Proxied, Proxied]]:
    """Two instances of one fleet."""
    given = {
        "crash_recovery_enable": True,
        "fleet_retries_enable": True,
        "fleet_patience_ms": 500,
        "producer_state_log_num_partitions": 4,
        **options,
    }
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t")
        async with (
            running(fake.bootstrap, instance_id="one", **given) as one,
            running(fake.bootstrap, instance_id="two", **given) as other,
        ):
            one.fake = other.fake = fake
            await eventually(lambda: one.stats.upstream.ready and other.stats.upstream.ready)
            yield one, other


async def write(client: FrameClient, value: bytes) -> tuple[list[int], list[int]]:
    answer = await client.call(request(batch(value)), 8)
    return errors_of(answer), bases(answer)


def fences(*proxies: Proxied) -> int:
    return sum(proxy.stats.retries.fences.get("done", 0) for proxy in proxies)


@pytest.mark.parametrize("reset", [True, False])
async def test_a_retry_at_another_instance_is_not_written_and_needs_no_fence(reset: bool) -> None:
    async with two() as (one, other):
        client = await one.client(1)
        assert await write(client, b"a") == ([0], [0])
        await end(client, reset=reset)
        async with await other.client(1) as client:
            assert await write(client, b"a") == ([0], [0])
            assert await write(client, b"b") == ([0], [1])
        assert values_in(one.brokers, "t") == [b"a", b"b"]
        assert fences(one, other) == 0


async def test_what_another_instance_has_in_flight_is_fenced() -> None:
    async with two() as (one, other):
        client, gate = await one.client(1), Gate(one, b"a")
        await client.send(request(batch(b"a")), 8)
        await gate.wait_reached()
        await end(client, reset=True)
        async with await other.client(1) as again:
            await again.send(request(batch(b"a")), 8)
            await eventually(lambda: fences(other) == 1)
            gate.release()
            assert errors_of(await again.receive()) == [0]
        assert values_in(one.brokers, "t") == [b"a"]
        await eventually(lambda: one.stats.clients.connections_open == 0)


async def test_what_is_in_flight_for_a_partition_that_does_not_exist_yet_is_fenced_when_it_appears() -> None:
    """The retry is refused unsent before that: the partition would take both."""
    async with two() as (one, other):
        client, gate = await one.client(1), Gate(one, b"b")
        message = request(batch(b"a"), batch(b"b"))
        await client.send(message, 8)
        await gate.wait_reached()
        await end(client, reset=True)
        async with await other.client(1) as again:
            for _ in range(2):
                assert errors_of(await again.call(message, 8)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            assert other.stats.retries.readbacks_failed == {}
            one.brokers.add_partitions(one.brokers.topics["t"], 1, 1)
            one.brokers.notify()
            await again.send(message, 8)
            await eventually(lambda: fences(other) == 2)
            gate.release()
            assert errors_of(await again.receive()) == [0, 0]
        await eventually(lambda: one.stats.clients.connections_open == 0)
        assert values_in(one.brokers, "t", 0).count(b"a") == values_in(one.brokers, "t", 1).count(b"b") == 1


@pytest.mark.parametrize("gone", [True, False])
async def test_a_connection_that_was_fenced_ends_with_all_that_waits_on_it(gone: bool) -> None:
    """Its first batch is still without a response; the second waits for it, and the third for the second."""
    values = b"a", b"b", b"c"
    async with two(delivery_timeout_ms=600_000) as (one, other):
        client, gate = await one.client(1), Gate(one, b"a")
        frames = [client.encode(request(batch(value), timeout_ms=600_000), 8) for value in values]
        await client.stream.send_all(b"".join(frames))
        await gate.wait_reached()
        if gone:
            await end(client, reset=True)
        async with await other.client(1) as again:
            await again.send(request(batch(b"a")), 8)
            await eventually(lambda: fences(other) == 1)
            gate.release()
            assert errors_of(await again.receive()) == [0]
            await one.at_rest()
            for value in values[1:]:
                assert (await write(again, value))[0] == [0]
        assert [value for value in values_in(one.brokers, "t") if value in values] == list(values)
        await end(client)


async def test_a_half_open_connection_is_fenced_after_a_while_and_ends_with_its_next_write() -> None:
    async with two() as (one, other):
        async with await one.client(1) as left, await other.client(1) as client:
            assert await write(left, b"a") == ([0], [0])
            assert await write(client, b"a") == ([0], [0])
            assert fences(one, other) == 1
            await left.send(request(batch(b"late")), 8)
            assert await left.ended()
            assert await write(client, b"b") == ([0], [2])  # after the marker
        assert values_in(one.brokers, "t")[0] == b"a"
        assert b"late" not in values_in(one.brokers, "t")


async def test_a_client_may_come_back() -> None:
    async with two() as (one, other):
        for number, proxy in enumerate((one, other, one, other)):
            client = await proxy.client(1)
            if number:
                assert await write(client, b"%d" % (number - 1)) == ([0], [number - 1])
            assert await write(client, b"%d" % number) == ([0], [number])
            await end(client, reset=True)
        assert values_in(one.brokers, "t") == [b"0", b"1", b"2", b"3"]
        assert fences(one, other) == 0


async def test_leases_at_the_same_time_see_each_other() -> None:
    """A request is read long after its client has gone: its instance finds what the other one has written since."""
    async with two() as (one, other):
        record, gate = one.server.lanes.log.record, trio.Event()
        reached = trio.Event()

        async def late(entry: Any) -> None:
            reached.set()
            await gate.wait()
            await record(entry)

        one.server.lanes.log.record = late  # type: ignore[method-assign]
        client = await one.client(1)
        await client.send(request(batch(b"a")), 8)
        await reached.wait()
        async with await other.client(1) as again:
            assert await write(again, b"a") == ([0], [0])
        gate.set()
        assert errors_of(await client.receive()) == [0]
        await end(client)
        assert values_in(one.brokers, "t") == [b"a"]


async def test_two_processes_of_one_name_do_not_fence_each_other_for_ever() -> None:
    async with two(fleet_patience_ms=1500) as (one, other):
        written: list[bytes] = []
        lost = [0, 0]

        async def produce(number: int, proxy: Proxied) -> None:
            client = await proxy.client(1)
            for nth in range(40):
                value = b"%d.%d" % (number, nth)
                while True:
                    try:
                        assert (await write(client, value))[0] == [0]
                        break
                    except (EOFError, trio.BrokenResourceError):
                        lost[number] += 1
                        await end(client)
                        client = await proxy.client(1)
                written.append(value)
                await trio.sleep(0.1)
            await end(client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, 0, one)
            nursery.start_soon(produce, 1, other)
        assert sorted(value for value in values_in(one.brokers, "t") if value and b"." in value) == sorted(written)
        assert sum(lost) <= 6


async def test_an_instance_without_the_option_writes_the_retry_again() -> None:
    async with two(fleet_retries_enable=False) as (one, other):
        for proxy in (one, other):
            client = await proxy.client(1)
            assert (await write(client, b"a"))[0] == [0]
            await end(client, reset=True)
        assert values_in(one.brokers, "t") == [b"a", b"a"]
