"""Two instances that are alive, and a client that sends again through the other one: each record is in the log once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest
import trio

from kproxy.codec.messages import ErrorCode
from kproxy.dedup.identity import Identity
from kproxy.proxy.principals import ANONYMOUS
from kproxy.testing.fake_broker import open_fake_cluster
from tests.codec.message_sets import message_set
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, produce, running, values_in
from tests.net.retrying import TIME_MS, Gate, bases, batch, end, request

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


async def test_an_instance_without_clients_forgets_what_others_listed_once_no_retry_can_come() -> None:
    async with two(retry_window_ms=5000) as (one, other):
        client = await one.client(1)
        assert await write(client, b"a") == ([0], [0])
        await end(client, reset=True)
        await rest(one)
        async with await other.client(1) as client:
            assert await write(client, b"b") == ([0], [1])
        await eventually(lambda: other.server.lanes.log.listed > 0)
        await eventually(lambda: other.stats.retries.memory_bytes > 0)
        await eventually(lambda: other.stats.retries.memory_bytes == 0)
        assert other.server.lanes.log.listed == 0
        assert other.server.lanes.log.elsewhere(Identity(ANONYMOUS, "test", "localhost")), "only the batches are freed"


async def test_an_instance_without_the_option_writes_the_retry_again() -> None:
    async with two(fleet_retries_enable=False) as (one, other):
        for proxy in (one, other):
            client = await proxy.client(1)
            assert (await write(client, b"a"))[0] == [0]
            await end(client, reset=True)
        assert values_in(one.brokers, "t") == [b"a", b"a"]


async def test_one_client_that_moves_to_and_fro_fast_is_not_two() -> None:
    """Each time a batch is in flight at the instance that it leaves, and is fenced by the other one."""
    async with two(fleet_patience_ms=100) as (one, other):
        written = []
        for number, (here, there) in enumerate(((one, other), (other, one)) * 3):
            value = b"%d" % number
            client, gate = await here.client(1), Gate(here, value)
            await client.send(request(batch(value)), 8)
            await gate.wait_reached()
            await end(client, reset=True)
            async with await there.client(1) as again:
                await again.send(request(batch(value)), 8)
                await trio.sleep(0.3)
                gate.release()
                assert errors_of(await again.receive()) == [0]
            written.append(value)
        assert [value for value in values_in(one.brokers, "t") if value in written] == written
        assert not any(proxy.server.lanes.fleet._telling for proxy in (one, other))
        await eventually(lambda: not one.stats.clients.connections_open + other.stats.clients.connections_open)


async def test_of_a_shared_producer_what_the_other_instance_holds_is_compared_without_a_fence() -> None:
    """Its former connection is half-open, and its instance continues to serve another process of that name."""
    identity = Identity(ANONYMOUS, "test", "localhost")
    async with two() as (one, other):
        async with await one.client(1) as left, await one.client(1) as process:
            for nth in range(30):
                assert (await write(left, b"%d" % nth))[0] == [0]
            assert (await write(process, b"x"))[0] == [0]
            for proxy in (one, other):
                proxy.server.lanes.fleet._shared_until[identity] = inf
            async with await other.client(1) as client:
                for nth in range(30):
                    assert await write(client, b"%d" % nth) == ([0], [nth])
            assert (await write(process, b"y"))[0] == [0]
            async with await other.client(1) as client:
                assert await write(client, b"y") == ([0], [31]), "each connection has it read again"
            assert fences(one, other) == 0
        assert len(values_in(one.brokers, "t")) == 32


async def test_equal_records_of_two_processes_that_share_a_producer_are_written_where_they_have_no_timestamps() -> None:
    identity = Identity(ANONYMOUS, "test", "localhost")
    equal = request(message_set([(TIME_MS, None, b"open")], 0, 0))
    async with two(clean_close_window_ms=0) as (one, other):
        for proxy in (one, other):
            proxy.server.lanes.fleet._shared_until[identity] = inf
        async with await one.client(1) as process:
            for _ in range(3):
                assert errors_of(await process.call(equal, 1)) == [0]
                async with await other.client(1) as client:
                    assert errors_of(await client.call(equal, 1)) == [0]
                await trio.sleep(0.1)
        assert len(values_in(one.brokers, "t")) == 6


@pytest.mark.parametrize("version", [1, 8])
async def test_a_retry_at_another_instance_is_recognised_however_many_batches_follow_the_first_copy(
    version: int,
) -> None:
    """What was in doubt at the first instance is in its list, also what a retry repeated there in vain."""
    async with two(clean_close_window_ms=0) as (one, other):
        messages = [request(_data(nth, version)) for nth in range(60)]
        for proxy, again in ((one, messages), (one, messages[:20]), (other, messages[5:])):
            client = await proxy.client(1)
            await client.stream.send_all(b"".join(client.encode(message, version) for message in again))
            await eventually(lambda: len(values_in(one.brokers, "t")) == 60)
            await trio.sleep(1)
            await end(client, reset=True)
            await rest(proxy)
        for proxy in (one, other):
            async with await proxy.client(1) as client:
                for message in messages:
                    assert errors_of(await client.call(message, version)) == [0]
                assert len(values_in(one.brokers, "t")) == 60
            await rest(proxy)


async def rest(proxy: Proxied) -> None:
    await eventually(lambda: not proxy.stats.clients.connections_open)


def _data(number: int, version: int) -> bytes:
    value = b"%d" % number
    if version == 1:
        return message_set([(TIME_MS, None, value)], 0, 0)
    return batch(value, time_ms=TIME_MS + 1000 * (number - 60))


async def test_what_another_instance_holds_is_compared_however_far_back() -> None:
    """Its process stands still: nothing is given back, and the client's connections have ended."""
    async with two() as (one, other):
        messages = [request(_data(nth, 8)) for nth in range(60)]
        async with await one.client(1) as left:
            await left.stream.send_all(b"".join(left.encode(message, 8) for message in messages))
            await eventually(lambda: len(values_in(one.brokers, "t")) == 60)
            async with await other.client(1) as client:
                for message in messages:
                    assert errors_of(await client.call(message, 8)) == [0]
            assert fences(one, other) == 1
        assert sum(bool(value and value.isdigit()) for value in values_in(one.brokers, "t")) == 60


async def test_a_request_that_is_read_late_is_no_second_copy_of_what_another_instance_wrote_and_confirmed() -> None:
    """The other instance has nothing in doubt by then, and says so."""
    async with two(clients_request_timeout_ms=1000) as (one, other):
        record, gate = one.server.lanes.log.record, trio.Event()
        reached = trio.Event()

        async def late(entry: Any) -> None:
            reached.set()
            await gate.wait()
            await record(entry)

        one.server.lanes.log.record = late  # type: ignore[method-assign]
        client = await one.client(1)
        await client.send(request(batch(b"a"), timeout_ms=600_000), 8)
        await reached.wait()
        async with await other.client(1) as again:
            assert await write(again, b"a") == ([0], [0])
            await trio.sleep(3)
        await rest(other)
        gate.set()
        assert errors_of(await client.receive()) == [0]
        await end(client)
        assert values_in(one.brokers, "t") == [b"a"]


def searched_and_held(proxy: Proxied) -> tuple[trio.Event, trio.Event]:
    """Events: an instance has searched the log for what others wrote; its request may continue."""
    recovery, reached, gate = proxy.server.keeper._recovery, trio.Event(), trio.Event()
    recover = recovery.recover

    async def late(*args: Any) -> None:
        await recover(*args)
        reached.set()
        await gate.wait()

    recovery.recover = late  # type: ignore[method-assign, assignment]
    return reached, gate


@pytest.mark.parametrize("shared", [True, False])
async def test_a_request_whose_client_has_gone_to_another_instance_meanwhile_is_not_written(shared: bool) -> None:
    """Its instance has searched the log when the client gives up, and so has the other one before it writes."""
    identity = Identity(ANONYMOUS, "test", "localhost")
    async with two() as (one, other):
        if shared:
            for proxy in (one, other):
                proxy.server.lanes.fleet._shared_until[identity] = inf
        one.brokers.create_topic("u")
        reached, gate = searched_and_held(one)
        async with await other.client(1) as before:
            assert errors_of(await before.call(produce("u", b"x"), 8)) == [0]
            left = await one.client(1)
            await left.send(request(batch(b"a"), timeout_ms=600_000), 8)
            await reached.wait()
            await end(left)
            async with await other.client(1) as again:
                assert (await write(again, b"a"))[0] == [0]
                gate.set()
                await rest(one)
                await trio.sleep(1)
        assert list(filter(None, values_in(one.brokers, "t"))) == [b"a"]
        assert one.stats.retries.requests_dropped == 1


async def test_a_search_at_other_instances_ends_with_the_request_that_it_is_for() -> None:
    """Else what connections have left grows for as long as the log of producer ids can't be read."""
    async with two() as (one, other):
        reached, gate = searched_and_held(one)
        log, begun, ended = one.server.lanes.log, trio.Event(), trio.Event()

        async def unreadable() -> None:
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        one.brokers.create_topic("u")
        async with await other.client(1) as before:
            assert errors_of(await before.call(produce("u", b"x"), 8)) == [0]
            left = await one.client(1)
            await left.send(request(batch(b"a"), timeout_ms=5_000), 8)
            await reached.wait()
            await end(left)
            log.look = unreadable  # type: ignore[method-assign]
            gate.set()
            with trio.fail_after(120):
                await begun.wait()
                await ended.wait()
        assert values_in(one.brokers, "t") == []
