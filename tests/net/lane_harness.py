"""A lane log on a fake cluster, without the rest of kproxy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from kproxy.codec.batch import iter_records
from kproxy.config import Address, Config
from kproxy.dedup.identity import Identity
from kproxy.dedup.instance_holder import is_holder_entry
from kproxy.dedup.lane_record import LaneRecord
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.lane_leases import Lanes
from kproxy.net.lane_log import LaneLog
from kproxy.net.lane_topic import TOPIC
from kproxy.net.socket_network import SocketNetwork
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.stats import Stats
from kproxy.testing.fake_broker import FakeCluster

ONE, TWO = Identity("", "one", "localhost"), Identity("", "two", "localhost")


@dataclass
class Instance:
    """One kproxy's log and what it asks with."""

    config: Config
    stats: Stats
    cluster: Cluster
    log: LaneLog
    nursery: trio.Nursery

    async def open(self) -> None:
        """Open the log; trio.TooSlowError if that takes long."""
        with trio.fail_after(120):
            await self.log.open(self.nursery)


@asynccontextmanager
async def instance(bootstrap: str, *, opened: bool = True, **options: Any) -> AsyncIterator[Instance]:
    """A kproxy process, as far as its lane log goes; it is killed when the block ends."""
    places = [place.rpartition(":") for place in bootstrap.split(",")]
    given = {
        "instance_id": "me",
        "retry_backoff_ms": 2,
        "retry_backoff_max_ms": 10,
        "upstream_request_timeout_ms": 1000,
        "producer_state_log_num_partitions": 4,
        **options,
    }
    config = Config(bootstrap_servers=tuple(Address(host, int(port)) for host, _, port in places), **given)
    stats = Stats()
    cluster = Cluster(config, stats.upstream, ClusterMap(), SocketNetwork())
    async with trio.open_nursery() as nursery:
        made = Instance(config, stats, cluster, LaneLog(cluster, config), nursery)
        try:
            if opened:
                await made.open()
            yield made
        finally:
            nursery.cancel_scope.cancel()
            made.log.close()
            cluster.close()


@asynccontextmanager
async def lanes(bootstrap: str, **options: Any) -> AsyncIterator[tuple[Instance, Lanes]]:
    """The lanes of a kproxy process; it is killed when the block ends."""
    async with instance(bootstrap, opened=False, **options) as kproxy:
        made = Lanes(kproxy.cluster, kproxy.config, kproxy.stats, kproxy.log)
        kproxy.nursery.start_soon(made.run)
        with trio.fail_after(120):
            await kproxy.log.opened.wait()
        yield kproxy, made


def lane(number: int, who: Identity = ONE, *, epoch: int = 0, last: int | None = None) -> LaneRecord:
    """A lane with 32 epochs, or up to ``last``."""
    return LaneRecord("me", KPROXY_BIT | number, epoch, epoch + 31 if last is None else last, who, 1_000)


def entries(fake: FakeCluster) -> list[tuple[int, bytes | None, bytes | None]]:
    """Partition, key and value of all that the log's topic holds, except for the notes of processes."""
    found = []
    for partition in fake.topics[TOPIC].partitions:
        data = partition.log.read(0, 1 << 30, whole_first_batch=True)
        for record in iter_records(data, max_decompressed_bytes=1 << 24):
            if not is_holder_entry(record):
                found.append((partition.index, record.key, record.value))
    return found
