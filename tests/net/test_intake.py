"""What becomes of requests that can't be taken at once."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdResponse
from kproxy.codec._generated.produce import ProduceRequest
from kproxy.codec.batch import iter_records
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Answer, Call, Delay, Drop
from tests.net.harness import FrameClient, Proxied, errors_of, metadata, produce, proxied, values_in


def _no_id(call: object) -> Answer:
    return Answer(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


@asynccontextmanager
async def told_late(request: ProduceRequest) -> AsyncIterator[tuple[Proxied, FrameClient]]:
    """A client's request is refused, as no producer id is available in time; from then on there is one."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, _no_id)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(request, 7)) == [ErrorCode.REQUEST_TIMED_OUT]
            proxy.brokers.controls.remove(control)
            yield proxy, client


async def test_a_request_waits_for_a_producer_id() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, _no_id, times=5)
        async with await proxy.client(1) as client:
            assert errors_of(await client.call(produce("t", b"a"), 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


@pytest.mark.idle_clock
async def test_a_client_is_answered_in_time_and_nothing_of_it_is_written() -> None:
    request = produce("t", b"a", timeout_ms=200)
    async with told_late(request) as (proxy, client):
        assert errors_of(await client.call(request, 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]
        assert proxy.stats.produce.requests_timed_out == 1


@pytest.mark.idle_clock
async def test_what_was_sent_after_a_refused_request_is_refused_too() -> None:
    """Taken, it would be in the log before the retry of the first."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, _no_id)
        first, second = produce("t", b"a", timeout_ms=200), produce("t", b"b")
        async with await proxy.client(1) as client:
            await client.stream.send_all(client.encode(first, 7) + client.encode(second, 7))
            assert errors_of(await client.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            proxy.brokers.controls.remove(control)
            assert errors_of(await client.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            for again in first, second:
                assert errors_of(await client.call(again, 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


@pytest.mark.idle_clock
async def test_a_client_that_gives_what_it_repeats_another_time_is_answered_once() -> None:
    """After its back-off; sarama does so."""
    async with told_late(produce("t", b"a", timeout_ms=200)) as (proxy, client):
        await trio.sleep(0.1)
        assert errors_of(await client.call(produce("t", b"a"), 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]


@pytest.mark.idle_clock
async def test_what_a_client_had_ready_after_a_refused_request_is_refused_too() -> None:
    """librdkafka sends it when it reads the refusal, before the retry, also with one request in flight."""
    first, second = produce("t", b"a", timeout_ms=200), produce("t", b"b")
    async with told_late(first) as (proxy, client):
        assert errors_of(await client.call(second, 7)) == [ErrorCode.REQUEST_TIMED_OUT]
        for again in first, second:
            assert errors_of(await client.call(again, 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]


async def test_all_that_was_there_before_a_refusal_is_refused_however_busy_kproxy_is() -> None:
    asked, values = trio.Event(), [b"%d" % number for number in range(12)]
    first, more = produce("t", b"a", timeout_ms=2_000), [produce("t", value) for value in values]

    def no_id(call: object) -> Answer:
        asked.set()
        return _no_id(call)

    async def keep_busy() -> None:
        while True:
            time.sleep(0.002)  # noqa: ASYNC251 - so that no wait is short
            await trio.lowlevel.checkpoint()

    async with proxied() as proxy, trio.open_nursery() as nursery:
        proxy.brokers.create_topic("t")
        control = proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, no_id)
        async with await proxy.client(1) as client:
            await client.send(first, 7)
            await asked.wait()
            for request in more:
                await client.send(request, 7)
            nursery.start_soon(keep_busy)
            assert errors_of(await client.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            proxy.brokers.controls.remove(control)
            for _ in values:
                assert errors_of(await client.receive()) == [ErrorCode.REQUEST_TIMED_OUT]
            for request in (first, *more):
                assert errors_of(await client.call(request, 7)) == [0]
            nursery.cancel_scope.cancel()
        assert values_in(proxy.brokers, "t") == [b"a", *values]


@pytest.mark.idle_clock
async def test_without_a_producer_id_for_long_the_connection_ends() -> None:
    async with proxied(upstream_request_timeout_ms=100) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda call: Drop())
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a", timeout_ms=30_000), 7)
            assert await client.ended()


async def test_other_requests_wait_for_one_that_waits() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, _no_id, times=3)
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a"), 7)
            await client.send(metadata("t"), 4)
            assert errors_of(await client.receive()) == [0]
            assert [topic.name for topic in (await client.receive()).topics] == ["t"]


@pytest.mark.idle_clock
async def test_a_request_that_came_while_another_one_waited_is_answered_in_time_by_when_it_came() -> None:
    """Not by when kproxy last read, which would be too early."""
    slow = {b"a": 4.0, b"c": 1.5}

    def hold(call: Call) -> Delay | None:
        part = call.request.topic_data[0].partition_data[0]
        values = [record.value for record in iter_records(part.records, max_decompressed_bytes=1 << 20)]
        return Delay(before=slow.pop(values[0])) if values[0] in slow else None

    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.PRODUCE, hold)
        async with await proxy.client(1) as client:
            refused = await client.call(produce("t", b"a", timeout_ms=1_000), 7)
            assert errors_of(refused) == [ErrorCode.REQUEST_TIMED_OUT]
            await client.send(produce("t", b"b", timeout_ms=10_000), 7)  # waits for the outcome of the first
            await trio.sleep(2.0)
            again = produce("t", b"c", timeout_ms=4_000)
            await client.send(again, 7)
            for _ in range(2):
                assert errors_of(await client.receive()) == [0]
            assert errors_of(await client.call(again, 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"c", b"c"]


@pytest.mark.idle_clock
async def test_a_request_that_came_while_another_one_waited_for_a_producer_id_is_answered_in_time_by_when_it_came() -> (
    None
):
    """No batch is open then."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.INIT_PRODUCER_ID, lambda _: Delay(before=3.0))
        async with await proxy.client(1) as client:
            await client.send(produce("t", b"a", timeout_ms=10_000), 7)
            await trio.sleep(2.0)
            equal = produce("t", b"b", timeout_ms=2_000)
            await client.send(equal, 7)
            assert [errors_of(await client.receive()) for _ in range(2)] == [[0], [0]]
            assert errors_of(await client.call(equal, 7)) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"b", b"b"]
