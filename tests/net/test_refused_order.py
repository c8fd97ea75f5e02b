"""Refused requests of clients that keep their order: nothing is written before the retry, however long that takes."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsRequest
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.testing.fake_broker import Call
from tests.net.harness import FrameClient, Proxied, errors_of, proxied, values_in
from tests.net.retrying import batch, end, request
from verification.simulation.faults import refusal

pytestmark = pytest.mark.idle_clock

TIMEOUT_MS = 2000
TIMED_OUT = [ErrorCode.REQUEST_TIMED_OUT]
#: One request is held, and the next one waits for room.
OPTIONS: dict[str, Any] = {"connection_buffer_bytes": 1024, "delivery_timeout_ms": 60_000}


def message(*values: bytes) -> Any:
    """Records with the same timestamps each time; what follows a request of them waits for room."""
    return request(batch(*(value + bytes(1500) for value in values)), timeout_ms=TIMEOUT_MS)


def log(proxy: Proxied) -> list[bytes]:
    return [(value or b"").rstrip(b"\0") for value in values_in(proxy.brokers, "t")]


async def named(proxy: Proxied, software: str) -> FrameClient:
    client = await proxy.client(1)
    await client.call(ApiVersionsRequest(client_software_name=software, client_software_version="1"), 3)
    return client


async def pipelined(client: FrameClient, *messages: Any) -> list[Sequence[int]]:
    for one in messages:
        await client.send(one, 8)
    return [errors_of(await client.receive()) for _ in messages]


class Replicas:
    """There are too few, until there are enough."""

    def __init__(self, proxy: Proxied) -> None:
        self.enough = False
        proxy.brokers.control(ApiKey.PRODUCE, self._refuse)

    def _refuse(self, call: Call) -> Any:
        is_data = call.request.topic_data[0].name == "t"
        return None if self.enough or not is_data else refusal(call, ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize("reconnects", [False, True])
@pytest.mark.parametrize("software", ["librdkafka", "confluent-kafka-python", "sarama"])
async def test_what_was_sent_before_the_refusal_was_read_waits_for_the_retry(software: str, reconnects: bool) -> None:
    """A client that sends its requests in any order, as sarama may, is waited for only for a moment."""
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t")
        replicas = Replicas(proxy)
        client = await named(proxy, software)
        assert await pipelined(client, message(b"1"), message(b"2"), message(b"3")) == [TIMED_OUT] * 3
        replicas.enough = True
        await trio.sleep(10)
        assert log(proxy) == [b"1"], "kproxy keeps sending what it had accepted"
        if reconnects:
            await end(client)
            client = await named(proxy, software)
        keeps_order = software != "sarama"
        assert await pipelined(client, message(b"4"), message(b"5")) == ([TIMED_OUT] * 2 if keeps_order else [[0]] * 2)
        await trio.sleep(10)
        if keeps_order:
            assert await pipelined(client, message(b"1", b"2"), message(b"3", b"4", b"5"), message(b"6")) == [[0]] * 3
            assert log(proxy) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        else:
            assert log(proxy) == [b"1", b"4", b"5"]
        await end(client)


async def test_records_that_the_client_has_given_up_hold_up_nothing() -> None:
    async with proxied(**OPTIONS) as proxy:
        proxy.brokers.create_topic("t")
        replicas = Replicas(proxy)
        async with await named(proxy, "librdkafka") as client:
            assert await pipelined(client, message(b"1"), message(b"2")) == [TIMED_OUT] * 2
            replicas.enough = True
            await trio.sleep(10)
            assert await pipelined(client, message(b"3")) == [TIMED_OUT]
            assert await pipelined(client, message(b"3"), message(b"4")) == [[0]] * 2
        assert log(proxy) == [b"1", b"3", b"4"]
