"""kproxy stops in good order and starts again: what was in doubt is compared then, and nothing else."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kproxy.codec._generated.fetch import FetchRequest
from kproxy.codec.messages import ApiKey
from kproxy.dedup.retry_rules import BROKEN_FOR_AT_MOST
from kproxy.net.lane_topic import TOPIC as LANES
from kproxy.testing.fake_broker import Call, FakeServer, open_fake_cluster
from tests.codec.message_sets import message_set
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, running, values_in
from tests.net.retrying import TIME_MS, batch, end, request

pytestmark = pytest.mark.idle_clock

#: More than any client was taken to have in flight.
_DEEP = 60


@asynccontextmanager
async def started(fake: FakeServer, **options: Any) -> AsyncIterator[Proxied]:
    """kproxy under the same name, until it has stopped in good order."""
    given = {"crash_recovery_enable": True, "clean_close_window_ms": 0, **options}
    async with running(fake.bootstrap, instance_id="one", **given) as proxy:
        proxy.fake = fake
        await eventually(lambda: proxy.stats.upstream.ready)
        yield proxy


@asynccontextmanager
async def cluster() -> AsyncIterator[FakeServer]:
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t", partitions=2)
        yield fake


def old(value: bytes) -> bytes:
    """A record in message format 0."""
    return message_set([(TIME_MS, None, value)], 0, 0)


def later(number: int) -> bytes:
    """A record that was made a second after the one of the number before."""
    return batch(b"%d" % number, time_ms=TIME_MS + 1000 * (number - _DEEP))


async def send_all(client: FrameClient, messages: Sequence[Any], version: int = 8) -> None:
    """Sends many requests without reading a response."""
    await client.stream.send_all(b"".join(client.encode(message, version) for message in messages))


async def lose(fake: FakeServer, proxy: Proxied, messages: Sequence[Any], *, written: int, version: int = 8) -> None:
    """All requests are served, and the connection breaks before their client has read any response."""
    client = await proxy.client(1)
    await send_all(client, messages, version)
    await eventually(lambda: len(values_in(fake.cluster, "t")) == written and not proxy.stats.produce.sends_in_flight)
    await end(client, reset=True)
    await eventually(lambda: not proxy.stats.clients.connections_open)


def asked(fake: FakeServer, *apis: ApiKey) -> list[int]:
    """Counts requests to the brokers from now on, without Fetches of kproxy's own log."""
    count = [0]

    def control(call: Call) -> None:
        lanes = call.cluster.topics[LANES].topic_id
        own = isinstance(call.request, FetchRequest) and all(
            topic.topic == LANES or topic.topic_id == lanes for topic in call.request.topics
        )
        count[0] += not own

    for api in apis:
        fake.cluster.control(api, control)
    return count


async def test_equal_records_of_clients_that_closed_in_good_order_are_all_written() -> None:
    """Of message format 0: nothing but the ends of the connections distinguishes them from retries."""
    equal = request(old(b"open"))
    async with cluster() as fake:
        for _ in range(2):
            async with started(fake) as proxy:
                client = await proxy.client(1)
                for _ in range(20):
                    assert errors_of(await client.call(equal, 1)) == [0]
                await end(client)
                await eventually(lambda: not proxy.stats.clients.connections_open)
        assert len(values_in(fake.cluster, "t")) == 40


async def test_a_client_that_is_connected_when_kproxy_stops_has_its_responses() -> None:
    equal = request(old(b"open"))
    async with cluster() as fake:
        for _ in range(2):
            async with started(fake) as proxy:
                client = await proxy.client(1)
                for _ in range(20):
                    assert errors_of(await client.call(equal, 1)) == [0]
            await end(client)
        assert len(values_in(fake.cluster, "t")) == 40


async def test_where_nothing_is_in_doubt_nothing_is_searched_or_read() -> None:
    """The connection has outlived all time-outs of its client."""
    async with cluster() as fake:
        async with started(fake, clients_request_timeout_ms=1000) as proxy, await proxy.client(1) as client:
            for nth in range(_DEEP):
                assert errors_of(await client.call(request(batch(b"%d" % nth)), 8)) == [0]
            await trio.sleep(BROKEN_FOR_AT_MOST + 5)
        count = asked(fake, ApiKey.DESCRIBE_PRODUCERS, ApiKey.FETCH, ApiKey.WRITE_TXN_MARKERS)
        async with started(fake) as proxy, await proxy.client(1) as client:
            begun = count[0]
            for nth in range(5):
                assert errors_of(await client.call(request(batch(b"%d" % nth)), 8)) == [0]
            assert count[0] == begun
            assert (proxy.stats.retries.recoveries, proxy.stats.retries.readbacks) == (0, 0)


@pytest.mark.parametrize("version", [1, 8])
async def test_whatever_is_in_doubt_is_recognised_however_many_batches_that_are(version: int) -> None:
    data = batch if version == 8 else old
    messages = [request(data(b"%d" % nth)) for nth in range(_DEEP)]
    async with cluster() as fake:
        async with started(fake) as proxy:
            await lose(fake, proxy, messages, written=_DEEP, version=version)
        count = asked(fake, ApiKey.DESCRIBE_PRODUCERS, ApiKey.WRITE_TXN_MARKERS)
        async with started(fake) as proxy, await proxy.client(1) as client:
            for message in messages:
                assert errors_of(await client.call(message, version)) == [0]
        assert len(values_in(fake.cluster, "t")) == _DEEP
        assert count == [0]


async def test_what_was_matched_and_lost_again_is_still_in_doubt() -> None:
    """The retry has left nothing in the log, and many newer batches have followed the first copy."""
    async with cluster() as fake:
        async with started(fake) as proxy:
            await lose(fake, proxy, [request(batch(b"a"))], written=1)
            async with await proxy.client(1) as client:
                for nth in range(20):
                    assert errors_of(await client.call(request(later(nth)), 8)) == [0]
            await lose(fake, proxy, [request(batch(b"a"))], written=21)
            async with await proxy.client(1) as client:
                for nth in range(20, 40):
                    assert errors_of(await client.call(request(later(nth)), 8)) == [0]
        async with started(fake) as proxy, await proxy.client(1) as client:
            assert errors_of(await client.call(request(batch(b"a")), 8)) == [0]
        assert values_in(fake.cluster, "t").count(b"a") == 1


async def test_a_second_restart_knows_what_the_first_one_did() -> None:
    async with cluster() as fake:
        async with started(fake) as proxy:
            await lose(fake, proxy, [request(batch(b"a"))], written=1)
        async with started(fake) as proxy, await proxy.client(1) as client:
            assert errors_of(await client.call(request(batch(b"b"), batch(b"c")), 8)) == [0, 0]
        async with started(fake) as proxy, await proxy.client(1) as client:
            assert errors_of(await client.call(request(batch(b"a")), 8)) == [0]
        assert values_in(fake.cluster, "t") == [b"a", b"b"]


async def test_after_a_crash_a_retry_is_recognised_however_many_batches_follow_the_first_copy() -> None:
    messages = [request(later(nth)) for nth in range(_DEEP)]
    async with cluster() as fake:
        async with started(fake) as proxy:
            client = await proxy.client(1)
            await send_all(client, messages)
            await eventually(lambda: len(values_in(fake.cluster, "t")) == _DEEP)
            proxy.server.lanes.log.put = lambda *_: None  # type: ignore[method-assign] # nothing is written at its end
        await end(client, reset=True)
        async with started(fake) as proxy, await proxy.client(1) as client:
            for message in messages:
                assert errors_of(await client.call(message, 8)) == [0]
        assert sorted(value or b"" for value in values_in(fake.cluster, "t") if value and value.isdigit()) == sorted(
            b"%d" % nth for nth in range(_DEEP)
        )


async def test_after_a_crash_equal_records_without_timestamps_are_retries_of_the_last_batches_only() -> None:
    """Twelve batches; five of them may be retries of those in flight, the others are new."""
    async with cluster() as fake:
        async with started(fake) as proxy:
            client = await proxy.client(1)
            for nth in range(12):
                assert errors_of(await client.call(request(old(b"%d" % nth)), 1)) == [0]
                await trio.sleep(3)
            proxy.server.lanes.log.put = lambda *_: None  # type: ignore[method-assign]
        await end(client)
        async with started(fake) as proxy, await proxy.client(1) as client:
            for nth in range(12):
                assert errors_of(await client.call(request(old(b"%d" % nth)), 1)) == [0]
        assert sum(bool(value and value.isdigit()) for value in values_in(fake.cluster, "t")) == 12 + 7
