"""What is read back from brokers' logs, and what becomes of what can't be."""

import pytest

from kproxy.codec.messages import ApiKey
from kproxy.net.heap_keeper import HeapKeeper
from kproxy.testing.fake_broker import Close
from tests.net.harness import Proxied, errors_of, eventually, proxied, values_in
from tests.net.retrying import batch, end, request

pytestmark = pytest.mark.idle_clock


async def leave_in_doubt(proxy: Proxied, *, reset: bool = True) -> None:
    """A record is written, and it is unknown whether its client received the response."""
    client = await proxy.client(1)
    assert errors_of(await client.call(request(batch(b"a")), 8)) == [0]
    await end(client, reset=reset)
    await eventually(lambda: proxy.stats.clients.connections_open == 0)


async def send_again(proxy: Proxied, message: object = None) -> list[int]:
    async with await proxy.client(1) as client:
        return errors_of(await client.call(message or request(batch(b"a")), 8))  # type: ignore[arg-type]


async def test_a_cut_connection_is_looked_into_before_its_retry_comes() -> None:
    """What is compacted away or expires meanwhile would be written again else, over newer values."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        fetched: list[object] = []
        proxy.brokers.control(ApiKey.FETCH, fetched.append)  # type: ignore[arg-type]
        await leave_in_doubt(proxy)
        await eventually(lambda: bool(fetched))


async def test_a_clean_end_costs_no_read() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        fetched: list[object] = []
        proxy.brokers.control(ApiKey.FETCH, fetched.append)  # type: ignore[arg-type]
        await leave_in_doubt(proxy, reset=False)
        assert not fetched
        assert await send_again(proxy) == [0]
        assert fetched
        assert values_in(proxy.brokers, "t") == [b"a"]


async def test_memory_is_looked_after_when_what_was_in_doubt_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def look(_: HeapKeeper, used: int, now: float) -> bool:
        seen.append(used)
        return False

    async with proxied(retry_window_ms=5000) as proxy:
        proxy.brokers.create_topic("t")
        await leave_in_doubt(proxy)
        monkeypatch.setattr(HeapKeeper, "look", look)
        await eventually(lambda: proxy.server.keeper.size > 0)
        size = proxy.server.keeper.size
        await eventually(lambda: proxy.server.keeper.size == 0)
        await eventually(lambda: seen[-1] == 0)
        assert size in seen


@pytest.mark.parametrize("reset", [True, False])
async def test_what_can_not_be_read_is_written_and_counted(reset: bool) -> None:
    async with proxied(delivery_timeout_ms=200) as proxy:
        proxy.brokers.create_topic("t")
        proxy.brokers.control(ApiKey.FETCH, lambda _: Close())
        await leave_in_doubt(proxy, reset=reset)
        assert await send_again(proxy) == [0]
        assert values_in(proxy.brokers, "t") == [b"a", b"a"]
        assert proxy.stats.retries.readbacks_failed == {"unreadable": 1}


async def test_a_topic_that_was_made_again_holds_nothing_of_the_old_one() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        await leave_in_doubt(proxy, reset=False)
        proxy.brokers.delete_topic("t")
        proxy.brokers.create_topic("t")
        async with await proxy.client(1, client_id="other") as client:
            assert errors_of(await client.call(request(batch(b"z")), 8)) == [0]
        assert await send_again(proxy) == [0]
        assert values_in(proxy.brokers, "t") == [b"z", b"a"]
        assert proxy.stats.retries.readbacks_failed == {"gone": 1}


async def test_what_is_in_doubt_of_topics_named_by_id_is_found() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        message = request(batch(b"a"))
        message.topic_data[0].name, message.topic_data[0].topic_id = "", proxy.brokers.topics["t"].topic_id
        for _ in range(2):
            client = await proxy.client(1)
            assert errors_of(await client.call(message, 13)) == [0]
            await end(client, reset=True)
        assert values_in(proxy.brokers, "t") == [b"a"]
