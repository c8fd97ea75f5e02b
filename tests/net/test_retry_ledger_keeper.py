"""What is read back from brokers' logs, and what becomes of what can't be."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.codec.messages import ApiKey
from kproxy.dedup.digest import UNTIMED
from kproxy.dedup.unconfirmed import UnconfirmedBatch
from kproxy.net.heap_keeper import HeapKeeper
from kproxy.testing.fake_broker import Close
from tests.net.harness import Proxied, errors_of, eventually, proxied, values_in
from tests.net.retrying import batch, end, request
from tests.net.test_balanced_io import client_of, line

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


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_topic_that_was_made_again_holds_nothing_of_the_old_one(is_seen: bool) -> None:
    """A write through this kproxy shows it; else the log is read."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        await leave_in_doubt(proxy, reset=False)
        proxy.brokers.delete_topic("t")
        proxy.brokers.create_topic("t")
        if is_seen:
            async with await proxy.client(1, client_id="other") as client:
                assert errors_of(await client.call(request(batch(b"z")), 8)) == [0]
        else:
            proxy.brokers.topics["t"].partitions[0].log.append(memoryview(batch(b"z")), 0, proxy.brokers.clock())
        assert await send_again(proxy) == [0]
        assert values_in(proxy.brokers, "t") == [b"z", b"a"]
        assert proxy.stats.retries.readbacks_failed == ({} if is_seen else {"gone": 1})


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


def unconfirmed(proxy: Proxied) -> UnconfirmedBatch:
    """The only one."""
    ledgers = proxy.server.keeper._ledgers
    [identity] = [*ledgers._ledgers, *ledgers._resting]
    ledger = ledgers.of(identity)
    assert ledger is not None
    [[entry]] = ledger.entries.values()
    return entry


@pytest.mark.parametrize(("sequence", "written"), [(0, [b"a"]), (1, [b"a", b"a"])])
async def test_a_batch_of_which_nobody_said_where_it_is_is_found_or_gone(sequence: int, written: list[bytes]) -> None:
    """Another batch of its producer id is no substitute."""
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        await leave_in_doubt(proxy, reset=False)
        entry = unconfirmed(proxy)
        entry.stamp.base_offset, entry.stamp.sequence = -1, entry.stamp.sequence + sequence
        assert await send_again(proxy) == [0]
        assert values_in(proxy.brokers, "t") == written
        assert proxy.stats.retries.readbacks_failed == ({"gone": 1} if sequence else {})


async def lose(proxy: Proxied, *values: bytes) -> None:
    """Records without timestamps are written one by one; then their connection breaks."""
    client = await proxy.client(1)
    for value in values:
        assert errors_of(await client.call(request(batch(value, time_ms=UNTIMED)), 8)) == [0]
    await end(client, reset=True)
    await eventually(lambda: proxy.stats.clients.connections_open == 0)


async def test_a_match_without_an_equal_timestamp_is_logged_once_for_a_producer() -> None:
    async with proxied() as proxy:
        proxy.brokers.create_topic("t")
        with capture_logs() as lines:
            await lose(proxy, b"a", b"b")
            await lose(proxy, b"a", b"b")
            await eventually(lambda: bool(warnings(lines)))
        assert values_in(proxy.brokers, "t") == [b"a", b"b"]
        [warning] = warnings(lines)
        assert {name: warning[name] for name in ("client_id", "topic", "partition", "log_level")} == {
            "client_id": "test",
            "topic": "t",
            "partition": 0,
            "log_level": "warning",
        }
        assert proxy.stats.retries.records_matched_untimed == 2


def warnings(lines: list[Any]) -> list[Mapping[str, Any]]:
    return [line for line in lines if "without an equal timestamp" in line["event"]]


async def _twice(proxy: Proxied, connect: Callable[[], Any], *, pause: float = 0.0) -> list[bytes]:
    """What the log holds when a record without a timestamp was sent twice, over connections that end in good order."""
    proxy.brokers.create_topic("t")
    for _ in range(2):
        client = await connect()
        assert errors_of(await client.call(request(batch(b"a", time_ms=UNTIMED)), 8)) == [0]
        await end(client)
        await eventually(lambda: proxy.stats.clients.connections_open == 0)
        await trio.sleep(pause)
    return values_in(proxy.brokers, "t")


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ({}, 2),
        ({"clean_close_window_ms": 0}, 2),
        ({"clean_close_window_ms": 30_000}, 1),
        ({"clean_close_window_ms": 30_000, "clean_close_window_hosts": ("localhost",)}, 1),
        ({"clean_close_window_ms": 30_000, "clean_close_window_hosts": ("10.*",)}, 2),
    ],
)
async def test_after_an_end_in_good_order_an_equal_record_is_new_unless_something_on_the_way_was_declared(
    options: dict[str, Any], records: int
) -> None:
    async with proxied(**options) as proxy:
        assert await _twice(proxy, lambda: proxy.client(1)) == records * [b"a"]


@pytest.mark.parametrize(
    ("options", "pause", "records"),
    [
        ({}, 0.0, 1),
        ({}, 10.0, 2),
        ({"clean_close_window_ms": 0}, 0.0, 2),
        ({"clean_close_window_ms": 30_000, "clean_close_window_hosts": ("10.*",)}, 10.0, 1),
    ],
)
async def test_a_balancer_that_names_its_clients_counts_as_declared(
    options: dict[str, Any], pause: float, records: int
) -> None:
    async with proxied(proxy_protocol_hosts=("localhost",), **options) as proxy:
        port = proxy.cluster.map.brokers[1].port
        found = await _twice(proxy, lambda: client_of(proxy, line("192.0.2.7"), port), pause=pause)
        assert found == records * [b"a"]


@pytest.mark.parametrize("reset", [False, True])
async def test_what_a_client_left_rests_until_it_returns_and_its_retry_is_known(
    reset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kproxy.dedup.resting_ledger.REST_AFTER_S", 0.0)
    async with proxied(crash_recovery_enable=True) as proxy:
        proxy.brokers.create_topic("t")
        ledgers, lanes = proxy.server.keeper._ledgers, proxy.server.lanes
        await leave_in_doubt(proxy, reset=reset)
        await eventually(lambda: len(ledgers._resting) == 1 and not ledgers._ledgers)
        [held] = lanes.held()
        assert (held.is_leased, held.partitions) == (False, 1)
        assert await send_again(proxy) == [0]
        assert values_in(proxy.brokers, "t") == [b"a"]
        [again] = lanes.held()
        assert again.lane.producer_id == held.lane.producer_id
