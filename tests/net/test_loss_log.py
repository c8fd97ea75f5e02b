"""Acknowledged records that a log has lost: what is counted and logged, for every kind of producer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from kproxy.dedup.losses import Loss
from kproxy.net.loss_log import LossLog
from kproxy.proxy.kept_stats import KeptStats
from kproxy.testing.fake_broker import open_fake_cluster
from tests.net.harness import FrameClient, Proxied, errors_of, eventually, produce, running, values_in

_EVENT = "a log has lost acknowledged records"


@asynccontextmanager
async def writing() -> AsyncIterator[tuple[Proxied, FrameClient]]:
    """A producer without numbers of its own, with three acknowledged records."""
    async with open_fake_cluster(1) as fake:
        fake.cluster.create_topic("t")
        async with running(fake.bootstrap, instance_id="one", crash_recovery_enable=True) as proxy:
            await eventually(lambda: proxy.stats.upstream.ready)
            proxy.fake = fake
            async with await proxy.client(1) as client:
                for value in (b"a", b"b", b"c"):
                    assert errors_of(await client.call(produce("t", value), 9)) == [0]
                yield proxy, client


@pytest.mark.parametrize("moves", [False, True], ids=["there", "over another connection"])
@pytest.mark.parametrize(("left", "lost"), [(0, 3), (1, 2), (2, 1)])
@pytest.mark.idle_clock
async def test_lost_records_are_reported_when_their_producer_writes_again(left: int, lost: int, moves: bool) -> None:
    async with writing() as (proxy, client):
        proxy.brokers.topics["t"].partitions[0].log.truncate(left)
        await trio.sleep(1)
        async with await proxy.client(1) as other:
            now = other if moves else client
            with capture_logs() as logs:
                assert errors_of(await now.call(produce("t", b"d"), 9)) == [0]
            assert proxy.stats.kept.lost_records == lost
            [line] = [line for line in logs if line["event"] == _EVENT]
            assert (line["topic"], line["partition"], line["records"], line["offsets_below"]) == ("t", 0, lost, 3)
            assert values_in(proxy.brokers, "t") == [*[b"a", b"b", b"c"][:left], b"d"]
            await trio.sleep(1)
            assert errors_of(await now.call(produce("t", b"e"), 9)) == [0]
            assert proxy.stats.kept.lost_records == lost


@pytest.mark.idle_clock
async def test_deleted_records_are_not_lost() -> None:
    async with writing() as (proxy, client):
        log = proxy.brokers.topics["t"].partitions[0].log
        log.delete_before(3)
        log.forget_producers(0)
        assert errors_of(await client.call(produce("t", b"d"), 9)) == [0]
        assert proxy.stats.kept.lost_records == 0


@pytest.mark.parametrize(
    ("ref", "name"),
    [(b"orders", "orders"), (b"\1" * 16, "known"), (b"\2" * 16, "02" * 16), (b"sixteen-letters.", "sixteen-letters.")],
)
def test_the_topic_is_named(ref: bytes, name: str) -> None:
    stats = KeptStats()
    with capture_logs() as logs:
        LossLog(stats, {b"\1" * 16: "known"}).report(Loss((ref, 3), 7, records=5, end=50))
    assert (logs[0]["topic"], logs[0]["partition"], logs[0]["log_level"], stats.lost_records) == (name, 3, "error", 5)
