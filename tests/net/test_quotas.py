"""Limits of quotas.file in front of a fake cluster: the throttle times of clients, and when their muting ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from kproxy.codec._generated.find_coordinator import FindCoordinatorRequest
from tests.net.harness import Proxied, errors_of, eventually, fetch, metadata, produce, proxied, values_in

MAX_MS = 200


@pytest.fixture
def quotas(tmp_path: Path) -> Path:
    return tmp_path / "quotas.yaml"


@asynccontextmanager
async def limited(file: Path, **limits: int) -> AsyncIterator[Proxied]:
    """The shell with these limits for all, in front of a cluster with a topic ``t``."""
    lines = "".join(f"    {name}: {value}\n" for name, value in limits.items())
    await trio.Path(file).write_text(f"quotas:\n  - principal: '*'\n{lines}")
    async with proxied(quotas_file=file, quota_throttle_max_ms=MAX_MS) as proxy:
        proxy.brokers.create_topic("t", 1)
        yield proxy


@pytest.mark.parametrize("version", [3, 9])
async def test_a_client_over_its_quota_is_throttled_and_muted_for_a_while(quotas: Path, version: int) -> None:
    async with limited(quotas, producer_byte_rate=1000) as proxy, await proxy.client(1) as client:
        first = await client.call(produce("t", b"x" * 2000), version)
        told_at = trio.current_time()
        assert first.throttle_time_ms == MAX_MS
        assert (await client.call(metadata("t"), 4)).throttle_time_ms == 0
        assert trio.current_time() - told_at > MAX_MS / 1000 * 0.5
        assert proxy.stats.refused.throttles == {"producer_byte_rate": 1}
        assert proxy.stats.refused.throttle_seconds == {"producer_byte_rate": MAX_MS / 1000}


async def test_an_old_client_is_not_heard_though_it_cannot_be_told(quotas: Path) -> None:
    async with limited(quotas, request_rate=1) as proxy, await proxy.client(1) as client:
        await client.call(metadata("t"), 0)
        await client.call(metadata("t"), 0)
        told_at = trio.current_time()
        assert proxy.stats.refused.throttles == {"request_rate": 1}
        await client.call(metadata("t"), 0)
        assert trio.current_time() - told_at > MAX_MS / 1000 * 0.5


async def test_requests_that_came_together_are_answered_all_the_same(quotas: Path) -> None:
    async with limited(quotas, request_rate=100, producer_byte_rate=10_000) as proxy, await proxy.client(1) as client:
        for _ in range(8):
            await client.send(produce("t", b"x" * 3000), 3)
        assert [errors_of(await client.receive()) for _ in range(8)] == [[0]] * 8
        assert len(values_in(proxy.brokers, "t")) == 8


async def test_acks_0_counts_too(quotas: Path) -> None:
    async with limited(quotas, producer_byte_rate=1000) as proxy, await proxy.client(1) as client:
        await client.stream.send_all(client.encode(produce("t", b"x" * 2000, acks=0), 3, silent=True))
        await eventually(lambda: proxy.stats.refused.throttles == {"producer_byte_rate": 1})


async def test_what_is_read_counts_by_the_bytes_of_the_answer_however_long(quotas: Path) -> None:
    async with limited(quotas, consumer_byte_rate=50_000) as proxy, await proxy.client(1) as client:
        await client.call(produce("t", b"x" * 200_000), 3)
        answer = await client.call(fetch("t"), 11)
        assert answer.throttle_time_ms == MAX_MS
        assert len(answer.responses[0].partitions[0].records) > 200_000
        assert proxy.stats.refused.throttles == {"consumer_byte_rate": 1}


async def test_connections_beyond_the_limit_are_ended_and_counted(quotas: Path) -> None:
    async with limited(quotas, connections=1) as proxy, await proxy.client(1) as client:
        await client.call(metadata("t"), 4)
        async with await proxy.client(1) as second:
            await second.send(metadata("t"), 4)
            assert await second.ended()
        assert proxy.stats.refused.refusals == {"quota": 1}
        await trio.aclose_forcefully(client.stream)
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        async with await proxy.client(1) as third:
            await third.call(metadata("t"), 4)


async def test_new_limits_hold_for_connections_that_live(quotas: Path) -> None:
    async with limited(quotas, request_rate=1000) as proxy, await proxy.client(1) as client:
        assert errors_of(await client.call(produce("t", b"a"), 3)) == [0]
        await trio.Path(quotas).write_text("quotas: [{principal: '*', request_rate: 1}]")
        assert proxy.server.quotas is not None
        assert await proxy.server.quotas.file.reload()
        told = [(await client.call(produce("t", b"a"), 3)).throttle_time_ms for _ in range(3)]
        assert told[-1] == MAX_MS


async def test_an_answer_made_here_counts_as_well(quotas: Path) -> None:
    async with limited(quotas, request_rate=1) as proxy, await proxy.client(1) as client:
        told = [(await client.call(FindCoordinatorRequest("g"), 1)).throttle_time_ms for _ in range(3)]
        assert told[-1] == MAX_MS
