"""Connections are used again, one for each request that is under way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.pool import Pool
from kproxy.proxy.routing import Address
from kproxy.testing.fake_broker import Answer, CloseAfter
from tests.net.harness import Proxied, proxied


@asynccontextmanager
async def pool(**options: Any) -> AsyncIterator[tuple[Proxied, Pool, Address]]:
    async with proxied(**options) as proxy:
        connections = Pool(proxy.cluster.network, proxy.config, proxy.cluster.room)
        broker = proxy.cluster.any_broker()
        assert broker is not None
        yield proxy, connections, broker.address
        connections.close()


async def test_one_for_each_request_at_a_time_and_then_again() -> None:
    async with pool() as (_, connections, address):
        async with connections.to(address) as one, connections.to(address) as other:
            assert one is not other
            await one.call(MetadataRequest(topics=[]), MetadataResponse)
        async with connections.to(address) as again, connections.to(address) as too:
            assert {again, too} == {one, other}


async def test_where_one_fails_the_others_of_that_broker_are_not_tried() -> None:
    async with pool() as (proxy, connections, address):
        async with connections.to(address), connections.to(address) as idle:
            pass
        proxy.brokers.control(ApiKey.METADATA, lambda _: CloseAfter(), times=1)
        with pytest.raises(OSError):
            async with connections.to(address) as one:
                await one.call(MetadataRequest(topics=[]), MetadataResponse)
        assert one.closed
        async with connections.to(address) as new:
            assert new not in (one, idle)


async def test_what_is_under_way_at_the_end_is_closed_when_it_has_ended() -> None:
    async with pool() as (_, connections, address):
        async with connections.to(address), connections.to(address) as used:
            pass
        async with connections.to(address) as under_way:
            connections.close()
            assert not under_way.closed
            await under_way.call(MetadataRequest(topics=[]), MetadataResponse)
        assert used.closed
        assert under_way.closed


async def test_nobody_is_there() -> None:
    async with pool() as (_, connections, address):
        with pytest.raises(OSError):
            async with connections.to(Address(address.host, 1)):
                pass
        with trio.fail_after(120):
            async with connections.to(address) as one:
                assert not one.closed


async def test_what_answers_as_no_broker_does_is_not_asked_again_for_a_while() -> None:
    """Once each client that connected had kproxy try again at once."""
    async with pool(retry_backoff_ms=1000, retry_backoff_max_ms=1000) as (proxy, connections, address):
        asked = proxy.brokers.control(
            ApiKey.API_VERSIONS, lambda _: Answer(ApiVersionsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
        )
        for _ in range(20):
            with pytest.raises(RemoteProtocolError, match="answered ApiVersions with error"):
                async with connections.to(address):
                    pass
        assert asked.hits == 1
        proxy.brokers.controls.remove(asked)
        async with connections.to(Address("localhost", address.port)):
            pass  # another address
        await eventually_connected(connections, address)


async def eventually_connected(connections: Pool, address: Address) -> None:
    with trio.fail_after(120):
        while True:
            with suppress(RemoteProtocolError):
                async with connections.to(address):
                    return
            await trio.sleep(0.01)
